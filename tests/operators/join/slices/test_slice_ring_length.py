"""How long a ring should be (S36, P17)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill_lab.slice.analysis.ring_length import RingModel

GOLDEN = RingModel(
    streams=3, rate=50, window=10, join_selectivity=0.1, join_time=10e-6, send_time=5e-6, hop_time=200e-6
)


@pytest.mark.parametrize(
    ("selectivity", "join_time", "central", "n1", "n2", "best", "latency"),
    [
        (0.1, 10e-6, 0.255, 20.83, 51.0, 21, 14.6e-3),
        (0.05, 10e-6, 0.130, 14.83, 36.56, 15, 10.4e-3),
        (0.05, 100e-6, 1.30, 46.66, 114.5, 47, 32.8e-3),
    ],
)
def test_the_golden_lengths(
    selectivity: float, join_time: float, central: float, n1: float, n2: float, best: int, latency: float
) -> None:
    ring = replace(GOLDEN, join_selectivity=selectivity, join_time=join_time)
    assert ring.central_time == pytest.approx(central)
    assert ring.balance == pytest.approx(n1, abs=0.01)
    assert ring.crossing == pytest.approx(n2, abs=0.05)
    assert ring.best_length() == best
    assert ring.latency(best) == pytest.approx(latency, abs=5e-5)


@given(
    streams=st.integers(2, 9),
    rate=st.floats(1, 500),
    window=st.floats(0.1, 60),
    selectivity=st.floats(0.001, 0.5),
    join_time=st.floats(1e-7, 1e-3),
    send_time=st.floats(1e-7, 1e-3),
    hops_per_tuple=st.floats(10, 1e5),
)
@settings(max_examples=60)
def test_the_theorem_is_within_one_of_the_best_whole_number(
    streams: int,
    rate: float,
    window: float,
    selectivity: float,
    join_time: float,
    send_time: float,
    hops_per_tuple: float,
) -> None:
    ring = RingModel(streams, rate, window, selectivity, join_time, send_time, hop_time=1.0)
    # A hop takes a fraction of the work on a tuple: rings then have from 1 to some 450 nodes.
    ring = replace(ring, hop_time=ring.central_time / hops_per_tuple)
    best = min(range(1, 460), key=ring.latency)
    assert abs(best - min(ring.balance, ring.crossing)) <= 1
    assert ring.latency(ring.best_length()) <= ring.latency(best) * 1.05


def test_more_nodes_always_give_more_output_up_to_a_limit() -> None:
    rates = [GOLDEN.speed_up(nodes) for nodes in range(1, 200)]
    assert rates == sorted(rates)
    assert rates[-1] < GOLDEN.rate * GOLDEN.window * GOLDEN.join_time / GOLDEN.send_time

"""Delays of denoising, computed from counted work."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.connectors.generators.rfid import Tags
from slicemill.extensions.rfid import Denoised
from slicemill_lab.mill.rfid import ARRIVAL_US, WAYS, mean_delay_ms, readings


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(0, 8)), min_size=1, max_size=15))
def test_an_arrival_is_processed_after_its_arrival_and_after_the_previous_one(
    steps: list[tuple[int, int]],
) -> None:
    at = np.cumsum([gap for gap, _ in steps])
    visits = np.array([seen for _, seen in steps])
    everything = np.arange(len(at))
    found = Denoised(readings=everything, by=everything, visits=visits, most_keys=0)
    free, delays = 0.0, []
    for arrived, seen in zip(at.tolist(), visits.tolist(), strict=True):
        free = max(free, arrived) + ARRIVAL_US + seen
        delays.append(free - arrived)
    assert mean_delay_ms(at, found, visit_ns=1000) == pytest.approx(np.mean(delays) / 1000)


def test_readings_emitted_by_the_flush_have_no_delay() -> None:
    at = np.array([0, 1000])
    found = Denoised(readings=np.array([0, 1]), by=np.array([1, 2]), visits=np.zeros(2, int), most_keys=0)
    assert mean_delay_ms(at, found) == pytest.approx(1 + ARRIVAL_US / 1000)


@pytest.mark.parametrize(
    ("percent", "delays_ms"),
    [(1, (307, 2228, 710)), (5, (335, 2227, 1223)), (20, (455, 2228, 1798)), (50, (652, 2215, 2054))],
)
def test_delays_equal_those_of_an_independent_simulation(percent: int, delays_ms: tuple[int, ...]) -> None:
    at, keys = readings(Tags(per_second=1, noise=percent / 100, seconds=2000, seed=3))
    for way, expected in zip(("Baseline (unordered)", "Lazy", "Eager"), delays_ms, strict=True):
        assert mean_delay_ms(at, WAYS[way](at, keys)) == pytest.approx(expected, rel=0.06)

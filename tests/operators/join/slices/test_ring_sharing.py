"""Which queries share a ring: the published cost, and what follows from it."""

from __future__ import annotations

from math import inf, isclose

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slicemill.operators.join.slices.workload import Member, MemberSide
from slicemill_lab.slice.analysis.ring_length import RingModel
from slicemill_lab.slice.analysis.ring_sharing import (
    RingTimes,
    SharedRing,
    best_deployment,
    deployed,
    followed,
)

COSTS = RingTimes(join=10e-6, send=5e-6, hop=200e-6)


def query(name: str, window: float, streams: int = 3, share: float = 1.0) -> Member:
    first = MemberSide(window, None if share == 1 else name, share)
    return Member(name, (first, *(MemberSide(window) for _ in range(streams - 1))))


def ring(*windows: float, rate: float = 5.0, matching: float = 0.1, share: float = 1.0) -> SharedRing:
    members = tuple(query(f"q{index}", window, share=share) for index, window in enumerate(windows))
    return SharedRing(members, (rate,) * 3, (matching,) * 3, COSTS)


@pytest.mark.parametrize(
    ("matching", "join", "best"), [(0.1, 10e-6, 21), (0.05, 10e-6, 15), (0.05, 100e-6, 47)]
)
def test_one_query_has_the_ring_of_the_closed_form(matching: float, join: float, best: int) -> None:
    """The golden values of S36, whose formula has neither T_i nor T_p: rates so low that none waits."""
    model = RingModel(3, 50.0, 10.0, matching, join, 5e-6, 200e-6)
    costs = RingTimes(join, send=5e-6, hop=200e-6)
    one = SharedRing((query("q", 10_000.0),), (0.05,) * 3, (matching,) * 3, costs)
    assert one.state == pytest.approx(1500)
    assert one.work(1) == pytest.approx(model.central_time)
    for nodes in (2, 10, 40):
        assert one.work(nodes) == pytest.approx(model.central_time + nodes * model.sending_time)
        assert one.latency(nodes) == pytest.approx(model.latency(nodes))
    assert one.best_length(200) == best


@given(st.lists(st.sampled_from([1.0, 2.0, 5.0, 10.0]), min_size=1, max_size=5))
def test_a_shared_ring_keeps_what_the_longest_window_needs(lengths: list[float]) -> None:
    """Theorem 10: without selections."""
    assert isclose(ring(*lengths).state, ring(max(lengths)).state)
    assert isclose(ring(*lengths).work(4), ring(max(lengths)).work(4))


@given(st.lists(st.tuples(st.sampled_from([1.0, 2.0, 5.0]), st.floats(0.05, 0.9)), min_size=1, max_size=4))
def test_selections_make_slices_smaller(wanted: list[tuple[float, float]]) -> None:
    members = tuple(query(f"q{index}", window, share=share) for index, (window, share) in enumerate(wanted))
    shared = SharedRing(members, (5.0,) * 3, (0.1,) * 3, COSTS)
    bare = SharedRing(tuple(one.without_predicates() for one in members), (5.0,) * 3, (0.1,) * 3, COSTS)
    assert shared.state < bare.state and shared.work(3) < bare.work(3) and shared.rate < bare.rate
    assert len(shared.slices(0)) == len({window for window, _ in wanted})


@settings(max_examples=20)
@given(
    st.lists(st.sampled_from([0.5, 2.0, 10.0, 30.0]), min_size=2, max_size=4),
    st.integers(1, 12),
    st.floats(1.0, 20.0),
)
def test_the_best_is_as_good_as_all_in_one_and_each_alone(
    lengths: list[float], nodes: int, rate: float
) -> None:
    whole = ring(*lengths, rate=rate)
    best = best_deployment(whole, nodes)
    indices = tuple(range(len(lengths)))
    assert sorted(index for queries in best.rings for index in queries) == list(indices)
    assert sum(best.rings.values()) <= max(nodes, len(best.rings))
    for sharing in ((indices,), tuple((index,) for index in indices)):
        assert best.latency <= deployed(whole, sharing, nodes).latency


def test_equal_queries_share_and_a_short_one_has_a_ring_of_its_own() -> None:
    whole = ring(0.1, 20.0, 20.0, rate=10.0)
    best = best_deployment(whole, 12)
    assert best.sharing == ((0,), (1, 2))
    assert best.rings[0,] < best.rings[1, 2]
    # With too few nodes for both, all share.
    scarce = next(nodes for nodes in range(1, 12) if best_deployment(whole, nodes).latency < inf)
    assert best_deployment(whole, scarce).latency < inf


@settings(max_examples=10)
@given(st.lists(st.sampled_from([0.5, 2.0, 10.0]), min_size=7, max_size=8), st.integers(4, 10))
def test_many_queries_are_merged_pair_by_pair(lengths: list[float], nodes: int) -> None:
    whole = ring(*lengths)
    best = best_deployment(whole, nodes)
    assert best.latency <= deployed(whole, (tuple(range(len(lengths))),), nodes).latency
    assert sorted(index for queries in best.rings for index in queries) == list(range(len(lengths)))


def test_rings_are_split_and_merged_as_rates_change_and_not_for_little() -> None:
    calm, busy = ring(0.1, 20.0, rate=2.0), ring(0.1, 20.0, rate=20.0)
    before = best_deployment(calm, 8)
    same = followed(ring(0.1, 20.0, rate=2.1), before, 8)
    assert same.sharing == before.sharing
    after = followed(busy, before, 8)
    assert after.latency <= deployed(busy, before.sharing, 8).latency
    back = followed(calm, after, 8)
    assert back.latency <= before.latency / 0.8


@given(st.floats(1.0, 30.0), st.integers(1, 10))
def test_what_keeps_up_is_left_for_nothing_that_does_not(rate: float, nodes: int) -> None:
    whole = ring(1.0, 20.0, rate=rate)
    now = deployed(whole, ((0, 1),), nodes)
    assume(now.latency < inf)
    assert followed(whole, now, nodes).latency <= now.latency

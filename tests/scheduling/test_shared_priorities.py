"""Deadlines, shared operators, clusters, the calendar queue, adaptive statistics (P18-P21, P24-P27, P35)."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.scheduling.adaptive import BatchCost, Selectivity
from slicemill.scheduling.batches import PRIORITIES, Batch
from slicemill.scheduling.calendar_queue import CalendarQueue
from slicemill.scheduling.clusters import logarithmic, top_one, uniform
from slicemill.scheduling.deadlines import Instant, edf, highest_rate, hybrid, play
from slicemill.scheduling.fas import fas_priority
from slicemill.scheduling.sharing import SharedSegment, best_single, defining_tree, set_priority

# -- deadlines --------------------------------------------------------------------------------------------


def test_golden_g12_the_hybrid_is_best_of_three() -> None:
    instants = [Instant(1, 100), Instant(4, 1), Instant(10, 0.5), Instant(2, 9)]
    assert play(instants, edf) == ([2, 1, 3, 0], 29.5)
    assert play(instants, highest_rate) == ([0, 3, 1, 2], 22.5)
    assert play(instants, hybrid) == ([1, 3, 2, 0], 18.5)
    totals = []
    for order in permutations(instants):
        now = late = 0.0
        for instant in order:
            now += instant.cost
            late += max(0.0, now - instant.deadline)
        totals.append(late)
    assert min(totals) == 18.5


INSTANTS = st.lists(
    st.tuples(st.floats(1, 10), st.floats(0, 25)).map(lambda p: Instant(*p)), min_size=1, max_size=6
)


@given(INSTANTS)
def test_the_hybrid_is_each_of_the_two_at_its_extreme(instants: list[Instant]) -> None:
    timely = [Instant(i.cost, 1000 + i.deadline) for i in instants]
    late = [Instant(i.cost, -1 - i.deadline) for i in instants]
    assert play(timely, hybrid) == play(timely, edf)
    assert play(late, hybrid) == play(late, highest_rate)


def test_over_many_sets_the_hybrid_is_near_the_best() -> None:
    random = np.random.default_rng(7)
    sums = dict.fromkeys(("edf", "rate", "hybrid"), 0.0)
    worse_than_both = 0
    for _ in range(300):
        jobs = [
            Instant(c, d) for c, d in zip(random.uniform(1, 10, 6), random.uniform(0, 25, 6), strict=True)
        ]
        late = {n: play(jobs, p)[1] for n, p in (("edf", edf), ("rate", highest_rate), ("hybrid", hybrid))}
        worse_than_both += late["hybrid"] > max(late["edf"], late["rate"]) + 1e-9
        for name, value in late.items():
            sums[name] += value
    assert worse_than_both == 0
    assert sums["hybrid"] < 0.9 * min(sums["edf"], sums["rate"])


# -- shared operators -------------------------------------------------------------------------------------


def test_golden_g13_to_g15_priority_defining_trees() -> None:
    first = [SharedSegment(0.5, 2), SharedSegment(0.3, 2), SharedSegment(0.05, 5)]
    tree = defining_tree(first, 1)
    assert (set(tree.members), tree.priority) == ({0, 1}, pytest.approx(0.8 / 3))
    assert (best_single(first), set_priority(first, 1)) == pytest.approx((0.25, 0.85 / 7))
    second = [SharedSegment(1, 2), *[SharedSegment(0.45, 1.1)] * 10]
    assert defining_tree(second, 1).priority == pytest.approx(2.25)
    third = [SharedSegment(1, 10), SharedSegment(9.9, 100), SharedSegment(0.05, 1.01)]
    assert set_priority(third, 1) == pytest.approx(0.1004495, rel=1e-6)
    tree = defining_tree(third, 1)
    assert (set(tree.members), tree.priority) == ({0, 2}, pytest.approx(0.1048951, rel=1e-6))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.floats(0.01, 1), st.floats(0, 5)), min_size=1, max_size=6))
def test_no_subset_has_a_greater_priority_than_the_tree(cases: list[tuple[float, float]]) -> None:
    segments = [SharedSegment(weight, 1 + rest) for weight, rest in cases]
    best = max(
        set_priority(subset, 1)
        for size in range(1, len(segments) + 1)
        for subset in combinations(segments, size)
    )
    tree = defining_tree(segments, 1)
    assert tree.priority == pytest.approx(best)
    assert tree.priority >= max(best_single(segments), set_priority(segments, 1)) - 1e-12


# -- clusters ---------------------------------------------------------------------------------------------


def test_golden_g7_clusters_of_one_to_a_hundred() -> None:
    assert uniform([1, 100], 2).pseudo == pytest.approx((1, 50.5))
    assert logarithmic([1, 100], 2).pseudo == pytest.approx((1, 10))
    assert logarithmic([1, 9.99, 10, 100], 2).member_of == (0, 0, 1, 1)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20), st.integers(1, 12))
def test_members_are_within_the_ratio_of_their_cluster(priorities: list[float], count: int) -> None:
    clusters = logarithmic(priorities, count)
    ratio = (max(priorities) / min(priorities)) ** (1 / count)
    for priority, cluster in zip(priorities, clusters.member_of, strict=True):
        assert 1 - 1e-9 <= priority / clusters.pseudo[cluster] <= ratio * (1 + 1e-6)


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.none() | st.floats(0, 99)), min_size=1, max_size=20))
def test_the_best_cluster_is_found_without_looking_at_all(cases: list[tuple[float, float | None]]) -> None:
    pseudo, heads = [p for p, _ in cases], [h for _, h in cases]
    scores = [p * (100 - h) for p, h in cases if h is not None]
    found = top_one(pseudo, heads, 100)
    assert (found is None) == (not scores)
    if found is not None:
        assert found.score == max(scores)


def test_few_pairs_are_looked_at() -> None:
    random = np.random.default_rng(1)
    looked = [
        found.looked_at
        for _ in range(50)
        if (found := top_one(random.uniform(0, 1, 500).tolist(), random.uniform(0, 99, 500).tolist(), 100))
    ]
    assert len(looked) == 50 and np.mean(looked) < 60


# -- calendar queue ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(1e-4, 1e4)), min_size=1, max_size=30))
def test_with_many_buckets_the_greatest_comes_first(puts: list[tuple[int, float]]) -> None:
    queue = CalendarQueue[int](1e-4, 1e4, 10_000)
    wanted = dict[int, float]()
    for item, priority in puts:
        queue.put(item, priority)
        wanted[item] = priority
    queue.discard(puts[0][0])
    wanted.pop(puts[0][0], None)
    while wanted:
        item = queue.pop()
        assert wanted[item] >= max(wanted.values()) * 0.99
        del wanted[item]
    assert len(queue) == 0
    with pytest.raises(IndexError):
        queue.pop()


# -- statistics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "expected"), [(0.175, 0.4475), (0.125, 0.4625), (0.0, 0.5), (1.0, 0.2)])
def test_golden_g9_selectivity_follows_the_window(alpha: float, expected: float) -> None:
    selectivity = Selectivity(0.5, alpha)
    assert not selectivity.observe(60, 12)
    assert selectivity.observe(40, 8) == (alpha > 0)
    assert selectivity.value == pytest.approx(expected)


def test_selectivity_converges_geometrically() -> None:
    selectivity = Selectivity(1.0)
    for _ in range(10):
        selectivity.observe(100, 20)
    assert selectivity.value - 0.2 == pytest.approx(0.8 * 0.825**10)


def test_batch_cost_is_fitted_to_past_runs() -> None:
    cost = BatchCost()
    for rows in (10, 1000, 500, 20_000, 7):
        cost.observe(rows, 0.08 + 2e-6 * rows)
    assert (cost.overhead, cost.per_row) == pytest.approx((0.08, 2e-6))
    assert cost.of(1000) == pytest.approx(0.082)
    same = BatchCost()
    same.observe(100, 0.2)
    same.observe(100, 0.2)
    assert same.of(100) == pytest.approx(0.2)


# -- batches ----------------------------------------------------------------------------------------------


def test_without_overhead_a_batch_of_one_has_the_tuple_wise_priority() -> None:
    cost = BatchCost(overhead=0.0, per_row=4.0)
    batch = Batch(rows=1, wait=10, selectivity=0.5, cost=cost)
    found = {name: priority(batch) for name, priority in PRIORITIES.items()}
    assert found == pytest.approx(
        {
            "fcfs": 10,
            "srpt": 0.25,
            "hr": 0.125,
            "hnr": 0.125 / 4,
            "lsf": 2.5,
            "brt": 1.25,
            "bsd": 1.25 / 16,
            "fas": 0.125,
        }
    )
    ten = Batch(rows=10, wait=10, selectivity=0.5, cost=cost)
    assert PRIORITIES["fas"](ten) == pytest.approx(fas_priority(0.5, 4, 10))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.floats(0.01, 1), st.floats(0, 2), st.floats(0.01, 1)),
        min_size=2,
        max_size=5,
    )
)
def test_by_rate_batches_wait_least(cases: list[tuple[int, float, float, float]]) -> None:
    batches = [Batch(n, 0.0, s, BatchCost(overhead=a, per_row=b)) for n, s, a, b in cases]

    def waited(order: tuple[Batch, ...]) -> float:
        start = total = 0.0
        for batch in order:
            total += batch.results * start
            start += batch.time
        return total

    ranked = tuple(sorted(batches, key=PRIORITIES["hr"], reverse=True))
    assert waited(ranked) == pytest.approx(min(map(waited, permutations(batches))))

"""Portions: the queries that count for a task, with their own ideal times, and the useful part downstream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.scheduling.batches import Batches
from slicemill.scheduling.chooser import Chooser
from slicemill.scheduling.policies import policy_named
from slicemill.scheduling.portions import Aim, Portion, QueryGroup, TaskColumns, WorkTree, portion
from slicemill_lab.charts.sharing import SharedSegment, best_single, defining_tree, set_priority

POWERS = {Aim.RESPONSE: 0, Aim.SLOWDOWN: 1, Aim.BALANCE: 2}


def served(results: float, ideal_s: float = 1.0, weight: float = 1.0) -> QueryGroup:
    return QueryGroup((results,), (weight,), ideal_s)


def shared(cost: float, segments: list[tuple[float, float]]) -> WorkTree:
    """Return an operator of some cost, shared by segments (w, C̄) whose costs contain the operator's cost."""
    readers = [(1.0, WorkTree(0.0, c - cost, (served(w),))) for w, c in segments]
    return WorkTree(0.0, cost, (), tuple(readers))


def table(trees: list[WorkTree], rows: float = 1.0, wait: float = 1.0) -> Batches:
    figures = TaskColumns(len(trees))
    for position, tree in enumerate(trees):
        figures.set(position, tree, rows)
    same = np.ones(len(trees))
    n = rows * same
    return Batches(np.arange(len(trees)), figures, n, n, n, wait * same, same, same)


@pytest.mark.parametrize(
    ("segments", "priority"),
    [
        ([(0.5, 2), (0.3, 2), (0.05, 5)], 0.8 / 3),  # G13
        ([(1, 2)] + 10 * [(0.45, 1.1)], 2.25),  # G14: the order matters
        ([(1, 10), (9.9, 100), (0.05, 1.01)], 0.1048951),  # G15: the search does not stop too early
    ],
)
def test_portions_equal_the_defining_trees_of_the_thesis(
    segments: list[tuple[float, float]], priority: float
) -> None:
    found = portion(shared(1.0, segments), Aim.RESPONSE, 1.0)
    assert found.rate(1.0) == pytest.approx(priority, rel=1e-6)
    lab = [SharedSegment(w, c) for w, c in segments]
    assert found.rate(1.0) == pytest.approx(defining_tree(lab, 1.0).priority)
    assert found.rate(1.0) >= max(best_single(lab), set_priority(lab, 1.0)) - 1e-12
    assert portion(shared(1.0, segments), Aim.ALL, 1.0).rate(1.0) == pytest.approx(set_priority(lab, 1.0))
    assert portion(shared(1.0, segments), Aim.PATH, 1.0).rate(1.0) == pytest.approx(best_single(lab))


def test_each_query_has_its_own_ideal_time() -> None:
    """Eq. 3.9: Σ S/T over SC̄. With one T, the sum of all downstream, both tasks would be equal."""
    quick_and_slow = WorkTree(0.0, 1.0, (served(1.0, ideal_s=1.0), served(1.0, ideal_s=9.0)))
    both_slow = WorkTree(0.0, 1.0, (served(1.0, ideal_s=9.0), served(1.0, ideal_s=9.0)))
    two = table([quick_and_slow, both_slow], wait=3.0)
    expected = {
        "hr": [2.0, 2.0],
        "brt": [6.0, 6.0],
        "hnr": [1 + 1 / 9, 2 / 9],
        "bsd": [3 * (1 + 1 / 81), 3 * 2 / 81],
        "lsf": [3.0, 3 / 9],
    }
    for name, priorities in expected.items():
        assert policy_named(name).priority(two) == pytest.approx(priorities), name


def test_queries_behind_a_derived_stream_have_their_own_ideal_times() -> None:
    """A cheap query before the derived stream keeps its ideal time despite expensive queries behind it."""
    dear = WorkTree(0.0, 50.0, (served(1.0, ideal_s=52.0),))
    feeding = WorkTree(0.0, 2.0, (served(1.0, ideal_s=2.0),), ((1.0, dear),))
    alone = WorkTree(0.0, 2.0, (served(0.9, ideal_s=2.0),))
    two = table([feeding, alone])
    assert Chooser(policy_named("hnr")).choose(two) == [0]
    assert policy_named("hnr").priority(two) == pytest.approx([0.25, 0.225])
    assert policy_named("lsf").priority(two) == pytest.approx([0.5, 0.5])


costs = st.floats(0.05, 20)
shares = st.just(0.0) | st.floats(1e-3, 3)
query = st.builds(served, shares, costs, st.floats(0.1, 5))


@st.composite
def trees(draw: st.DrawFn, depth: int = 2, overhead: bool = True) -> WorkTree:
    served_here = draw(st.lists(query, max_size=2))
    readers = []
    if depth:
        readers = [
            (draw(shares), draw(trees(depth=depth - 1, overhead=overhead)))
            for _ in range(draw(st.integers(0, 3 if depth == 2 else 2)))
        ]
    fixed = draw(st.floats(0, 5)) if overhead else 0.0
    return WorkTree(fixed, draw(costs), tuple(served_here), tuple(readers))


def part_rates(tree: WorkTree, aim: Aim, rows: float) -> Iterator[Portion]:
    """Yield every part of a tree that contains its task, and with each task all tasks on the way to it."""
    if aim is Aim.MEMORY:
        value = 1.0 - sum(share for share, _ in tree.readers)
    else:
        value = sum(one.value / one.ideal_s ** POWERS[aim] for one in tree.served)
    own = Portion(value, tree.overhead, tree.per_row)
    options = [
        [None, *(part.behind(share, rows) for part in part_rates(reader, aim, max(share * rows, 1.0)))]
        for share, reader in tree.readers
    ]
    for chosen in product(*options):
        whole = own
        for part in chosen:
            whole = whole.plus(part) if part is not None else whole
        yield whole


@settings(max_examples=80, deadline=None)
@given(trees(), st.sampled_from([*POWERS, Aim.MEMORY]), st.sampled_from([1.0, 7.0, 500.0]))
def test_no_part_of_the_tree_has_a_greater_priority_than_the_portion(
    tree: WorkTree, aim: Aim, rows: float
) -> None:
    best = max(part.rate(rows) for part in part_rates(tree, aim, rows))
    assert portion(tree, aim, rows).rate(rows) == pytest.approx(best, rel=1e-9, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(trees(), st.sampled_from([1.0, 30.0]))
def test_the_defining_tree_is_at_least_as_good_as_the_whole_tree_and_the_best_path(
    tree: WorkTree, rows: float
) -> None:
    defining = portion(tree, Aim.RESPONSE, rows).rate(rows)
    assert defining >= portion(tree, Aim.ALL, rows).rate(rows) * (1 - 1e-9)
    lightest = min((min(one.weights) for _, one in tree.query_groups()), default=0.0)
    assert defining >= lightest * portion(tree, Aim.PATH, rows).rate(rows) * (1 - 1e-9)


@given(st.floats(0.01, 3), st.floats(0, 2), costs, st.floats(0.1, 5), st.floats(1, 100), st.floats(0.1, 30))
def test_without_sharing_priorities_are_those_of_a_single_query(
    s: float, overhead: float, cost: float, weight: float, rows: float, wait: float
) -> None:
    ideal = 3 * cost
    one = table([WorkTree(overhead, cost, (served(s, ideal, weight),))], rows, wait)
    plain = TaskColumns.without_readers([s], [overhead], [cost], [ideal], [weight])
    rate = weight * s * rows / (overhead + cost * rows)
    expected = {
        "hr": rate,
        "hnr": rate / ideal,
        "brt": wait * rate,
        "bsd": wait * rate / ideal**2,
        "lsf": wait / ideal,
        "chain": rows / (overhead + cost * rows),
        "srpt": 1 / (ideal + cost * (rows - 1)),
    }
    alone = replace(one, figures=plain)
    for name, priority in expected.items():
        assert policy_named(name).priority(one) == pytest.approx([priority]), name
        assert policy_named(name).priority(alone) == pytest.approx([priority]), name


sets = st.lists(st.tuples(costs, st.lists(query, min_size=1, max_size=3)), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(sets, st.floats(0, 30))
def test_descending_order_of_shared_tasks_minimises_the_mean_slowdown(
    tasks: list[tuple[float, list[QueryGroup]]], wait: float
) -> None:
    """P26 from the pairwise rule: Σ α·S·(T + W + start)/T over the queries of all tasks is minimal."""
    batches = table([WorkTree(0.0, cost, tuple(queries)) for cost, queries in tasks], wait=wait + 1)

    def slowdowns(order: tuple[int, ...] | list[int], policy: str) -> float:
        start = total = 0.0
        for task in order:
            cost, queries = tasks[task]
            for one in queries:
                felt = one.ideal_s + wait + start
                total += one.value * (felt / one.ideal_s if policy == "hnr" else felt)
            start += cost
        return total

    for policy in ("hr", "hnr"):
        chosen = Chooser(policy_named(policy)).choose(batches, len(tasks))
        best = min(slowdowns(order, policy) for order in permutations(range(len(tasks))))
        assert slowdowns(chosen, policy) == pytest.approx(best, rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.floats(0.1, 5), st.lists(st.tuples(shares, costs), min_size=1, max_size=6))
def test_the_defining_tree_equals_that_of_brute_force(cost: float, rests: list[tuple[float, float]]) -> None:
    segments = [SharedSegment(w, cost + rest) for w, rest in rests]
    best = max(
        set_priority(chosen, cost)
        for size in range(1, len(segments) + 1)
        for chosen in combinations(segments, size)
    )
    found = portion(shared(cost, [(one.weight, one.cost) for one in segments]), Aim.RESPONSE, 1.0)
    assert found.rate(1.0) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_chain_cuts_paths_at_the_corners_of_the_progress_chart() -> None:
    """M7: a selective filter is a task; a filter that drops no rows is joined with its successor."""
    last = WorkTree(0.0, 8.0, (served(1.0),))
    filters = WorkTree(0.0, 1.0, (), ((0.1, last),))  # from 1 to 0.1 in 1 s, then from 0.1 to 0 in 0.8 s
    assert portion(filters, Aim.MEMORY, 1.0) == Portion(0.9, 0.0, 1.0)
    passes = WorkTree(0.0, 1.0, (), ((1.0, last),))  # from 1 to 1 in 1 s, then to 0 in 8 s
    assert portion(passes, Aim.MEMORY, 1.0) == Portion(1.0, 0.0, 9.0)
    # The next operator on the same line is at least as steep, so it runs next.
    assert portion(last, Aim.MEMORY, 1.0).rate(1.0) >= portion(passes, Aim.MEMORY, 1.0).rate(1.0)


def test_the_overhead_of_downstream_tasks_counts_by_the_chance_that_they_get_a_row() -> None:
    behind = WorkTree(10.0, 1.0, (served(1.0),))
    feeding = WorkTree(1.0, 1.0, (), ((0.01, behind),))
    assert portion(feeding, Aim.ALL, 1.0).overhead == pytest.approx(1 + 0.01 * 10)
    assert portion(feeding, Aim.ALL, 1000.0).overhead == pytest.approx(1 + 10)
    nobody = WorkTree(1.0, 1.0, (), ((0.0, behind),))
    assert portion(nobody, Aim.RESPONSE, 5.0).value == 0


def test_freshness_of_a_task_is_the_sum_over_its_queries() -> None:
    """P32, P33: Σ α·(1 - (1 - S)^N) over the work; a certainly stale query changes no other."""
    shares, weights = (1.0, 0.01, 0.2), (1.0, 3.0, 2.0)
    for rows in (1.0, 10.0, 300.0):
        task = table([WorkTree(1.0, 0.5, (QueryGroup(shares, weights, 1.5),))], rows)
        stale = sum(a * (1 - (1 - s) ** rows) for s, a in zip(shares, weights, strict=True))
        assert policy_named("fas").priority(task) == pytest.approx([stale / (1.0 + 0.5 * rows)])
    nobody = table([WorkTree(1.0, 0.5, ())])
    assert policy_named("fas").priority(nobody).tolist() == [0]

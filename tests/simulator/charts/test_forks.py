from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.strategies import TIMES
from slicemill_lab.charts.charts import (
    Piece,
    merged,
    slope,
    smoothed_area,
    staircase_area,
    steepest_first,
)
from slicemill_lab.charts.forks import ForkNode, ForkPartition, fork_partitions


def leaf(name: str, time: float | Fraction, selectivity: float | Fraction = 1, weight: float = 1) -> ForkNode:
    return ForkNode(name, time, selectivity, sinks=(weight,))


def members(partitions: list[ForkPartition]) -> list[set[str]]:
    return [set(part.members) for part in partitions]


@pytest.mark.parametrize(
    ("slow", "cut", "whole_area", "cut_area"),
    [(1.5, [{"O1", "O2", "O3"}], 35_000, 37_500), (3, [{"O1", "O2"}, {"O3"}], 50_000, 45_000)],
)
def test_golden_g2_a_fork_is_cut_if_the_slow_branch_exceeds_head_and_fast_branch(
    slow: float, cut: list[set[str]], whole_area: float, cut_area: float
) -> None:
    assert members(fork_partitions(ForkNode("O1", 1, consumers=(leaf("O2", 1), leaf("O3", slow))))) == cut
    assert smoothed_area([Piece(1 + 1 + slow, 2).times(100)]) == whole_area
    assert smoothed_area([Piece(1 + 1, 1).times(100), Piece(slow, 1).times(100)]) == cut_area


@given(TIMES, TIMES, TIMES)
def test_a_cut_reduces_the_area_of_a_fork_exactly_if_the_rule_cuts(
    head: Fraction, a: Fraction, b: Fraction
) -> None:
    fast, slow = sorted((a, b))
    whole = smoothed_area([Piece(head + fast + slow, 2)])
    cut = smoothed_area([Piece(head + fast, 1), Piece(slow, 1)])
    assert cut == Fraction(3, 2) * (head + fast) + slow / 2
    assert (cut < whole) == (slow > head + fast)
    partitions = fork_partitions(ForkNode("head", head, consumers=(leaf("a", a), leaf("b", b))))
    assert (len(partitions) == 2) == (cut < whole)


def test_golden_g3_branches_join_the_head_while_they_raise_the_output_rate() -> None:
    fork = ForkNode("O1", Fraction(2), consumers=(leaf("B3", Fraction(6)), leaf("B1", 1), leaf("B2", 2)))
    first, second = fork_partitions(fork)
    assert (first.members, slope(first)) == (("O1", "B1", "B2"), Fraction(2, 5))
    assert (second.members, slope(second)) == (("B3",), Fraction(1, 6))


@pytest.mark.parametrize(
    ("slow", "branches_alone", "whole_fork", "cut"),
    [(4, 2.5, 4.5, [{"C", "A", "B"}]), (8, 4.5, 6.5, [{"C", "A"}, {"B"}])],
)
def test_golden_g4_a_fork_with_selectivities_is_cut_if_that_saves_time_per_output(
    slow: float, branches_alone: float, whole_fork: float, cut: list[set[str]]
) -> None:
    head, fast_branch, slow_branch = Piece(2, 0), Piece(0.5 * 1, 0.5), Piece(0.5 * slow, 0.5)
    assert 1 / slope(merged([fast_branch, slow_branch])) == branches_alone
    assert 1 / slope(merged([head, fast_branch, slow_branch])) == whole_fork
    assert 1 / slope(merged([head, fast_branch])) == 5
    assert members(fork_partitions(ForkNode("C", 2, 0.5, consumers=(leaf("A", 1), leaf("B", slow))))) == cut


def test_a_branch_cut_off_at_a_lower_fork_is_a_branch_of_the_upper_fork() -> None:
    c = ForkNode("C", 1, consumers=(leaf("A", 1), leaf("B", 1)))
    g = ForkNode("G", 1, consumers=(leaf("H", 1), leaf("P", 1.5), leaf("O", 20)))
    e = ForkNode("E", 100, consumers=(c, leaf("D", 30), g))
    assert members(fork_partitions(g)) == [{"G", "H", "P"}, {"O"}]
    # The expensive head E is shared with all but D: O, cut off at G, joins E as a separate branch.
    assert [part.members for part in fork_partitions(e)] == [
        ("E", "C", "A", "B", "G", "H", "P", "O"),
        ("D",),
    ]


def test_a_weight_moves_its_branch_into_the_first_partition() -> None:
    def fork(weight: float) -> ForkNode:
        return ForkNode("O1", 1, consumers=(leaf("O2", 1), leaf("O3", 3, weight=weight)))

    assert members(fork_partitions(fork(1))) == [{"O1", "O2"}, {"O3"}]
    assert members(fork_partitions(fork(10))) == [{"O1", "O3"}, {"O2"}]


def test_a_node_with_a_sink_and_a_consumer_counts_both_outputs() -> None:
    (part,) = fork_partitions(ForkNode("A", 2, 0.5, consumers=(leaf("B", 1),), sinks=(1,)))
    assert (part.time, part.drop) == (2.5, 1.0)


def test_partitions_of_several_components_are_ordered_by_weighted_rate() -> None:
    one = fork_partitions(ForkNode("O1", 1, consumers=(leaf("O2", 1), leaf("O3", 8))))
    two = fork_partitions(leaf("P", 5, weight=2))
    assert members(steepest_first([*one, *two])) == [{"O1", "O2"}, {"P"}, {"O3"}]


def test_a_node_without_readers_is_rejected() -> None:
    with pytest.raises(ValueError, match="nothing reads"):
        ForkNode("lost", 1)


SELECTIVITIES = st.sampled_from([Fraction(1, 3), Fraction(1, 2), Fraction(1), Fraction(2)])


@st.composite
def trees(draw: st.DrawFn) -> ForkNode:
    """Draw an out-tree of up to six operators, each but the first below an earlier operator."""
    count = draw(st.integers(1, 6))
    above = [draw(st.integers(0, place - 1)) for place in range(1, count)]
    built: dict[int, ForkNode] = {}
    for place in reversed(range(count)):
        consumers = tuple(built[child] for child in range(place + 1, count) if above[child - 1] == place)
        sinks: tuple[int, ...] = () if consumers else (1,)
        if draw(st.booleans()):
            sinks = (*sinks, draw(st.integers(1, 3)))
        built[place] = ForkNode(str(place), draw(TIMES), draw(SELECTIVITIES), consumers, sinks)
    return built[0]


def pieces_by_name(node: ForkNode, reach: Fraction = Fraction(1)) -> dict[str, Piece]:
    passed = reach * Fraction(node.selectivity)
    found = {node.name: Piece(reach * node.time, passed * sum(node.sinks))}
    for consumer in node.consumers:
        found |= pieces_by_name(consumer, passed)
    return found


def orders(frontier: list[ForkNode]) -> Iterator[list[str]]:
    """Yield all orders in which no operator precedes the operator that feeds it."""
    if not frontier:
        yield []
    for place, node in enumerate(frontier):
        rest = frontier[:place] + frontier[place + 1 :] + list(node.consumers)
        for order in orders(rest):
            yield [node.name, *order]


@given(trees())
def test_fork_partitions_in_order_are_optimal_among_all_orders_of_the_tree(tree: ForkNode) -> None:
    pieces = pieces_by_name(tree)
    best = min(staircase_area(pieces[name] for name in order) for order in orders([tree]))
    partitions = fork_partitions(tree)
    planned = [name for part in partitions for name in part.members]
    assert planned in list(orders([tree]))
    assert staircase_area(pieces[name] for name in planned) == best
    assert all(slope(a) > slope(b) for a, b in pairwise(partitions))

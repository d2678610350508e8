from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given

from simulator.strategies import CHARTS
from slicemill_lab.calls import calls_made
from slicemill_lab.charts.charts import Path, Piece, Stage, merged, slope
from slicemill_lab.charts.partition import Segment, chain, partition


def steepest_lines(pieces: Sequence[Piece]) -> list[Segment]:
    """Return the steepest lines by definition: from each start, the longest of the steepest."""
    result = []
    start = 0
    while start < len(pieces):
        ends = range(start + 1, len(pieces) + 1)
        stop = max(ends, key=lambda end: (slope(merged(pieces[start:end])), end))
        line = merged(pieces[start:stop])
        result.append(Segment(start, stop, line.time, line.drop))
        start = stop
    return result


@given(CHARTS)
def test_stack_partitioning_equals_the_quadratic_definition(pieces: list[Piece]) -> None:
    assert partition(pieces) == steepest_lines(pieces)


@given(CHARTS)
def test_partition_slopes_are_non_increasing(pieces: list[Piece]) -> None:
    assert all(slope(a) > slope(b) for a, b in pairwise(partition(pieces)))


@given(CHARTS)
def test_a_segment_is_steeper_than_its_prefixes_and_flatter_than_its_suffixes(
    pieces: list[Piece],
) -> None:
    for segment in partition(pieces):
        for middle in range(segment.start + 1, segment.stop):
            assert slope(merged(pieces[segment.start : middle])) <= slope(segment)
            assert slope(merged(pieces[middle : segment.stop])) >= slope(segment)


def test_equal_slopes_become_one_segment() -> None:
    assert partition([Piece(1, 2), Piece(2, 4), Piece(3, 6)]) == [Segment(0, 3, 6, 12)]


def test_partitioning_takes_linear_time() -> None:
    # A rising chart merges every piece: the quadratic form would need four times the calls for twice the
    # pieces.
    def calls(count: int) -> int:
        pieces = [Piece(1, drop) for drop in range(count)]
        return calls_made(lambda: partition(pieces))

    assert calls(2_000) < 2.1 * calls(1_000)


def path(*stages: Stage) -> Path:
    return Path("path", stages)


def test_golden_g5_chain_runs_the_first_two_operators_depth_first_and_the_third_after() -> None:
    sizes = [Fraction(1), Fraction("0.9"), Fraction("0.3"), Fraction(0)]
    stages = [
        Stage(f"O{k}", Fraction(1), size_in=before, size_out=after)
        for k, (before, after) in enumerate(pairwise(sizes), start=1)
    ]
    first, second = chain(path(*stages))
    assert (first.start, first.stop, slope(first)) == (0, 2, Fraction("0.35"))
    assert (second.start, second.stop, slope(second)) == (2, 3, Fraction("0.3"))


@pytest.mark.parametrize(("first", "second", "tasks"), [(0.9, 0.1, 2), (0.1, 0.9, 1)])
def test_two_operators_are_cut_exactly_if_the_first_frees_memory_faster(
    first: float, second: float, tasks: int
) -> None:
    stages = Stage("O1", 1, size_in=1, size_out=1 - first), Stage("O2", 1, size_in=second, size_out=0)
    assert len(chain(path(*stages))) == tasks


def test_chain_groups_an_expanding_operator_with_its_successors() -> None:
    grows = Stage("join", 1.0, selectivity=3)
    shrinks = Stage("filter", 0.1, selectivity=0.1)
    assert [(s.start, s.stop) for s in chain(path(grows, shrinks, Stage("sink side", 1.0)))] == [(0, 3)]

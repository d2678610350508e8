"""Composite tuples of join trees: worked examples, and a comparison with joins executed tuple by tuple."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill_lab.charts.composites import (
    Join,
    Joined,
    JoinSide,
    JoinTree,
    count_sides,
    ideal_departure,
    ideal_time,
    output_rate,
    slowdown,
    virtual_segments,
)
from slicemill_lab.charts.segments import SegmentFigures, rate

G10 = Joined(JoinSide(1, 2, 2, 1), JoinSide(1, 3, 3, 1), Join(1, 1, 1), SegmentFigures(1, 4, 4))
G11 = Joined(JoinSide(0.5, 2, 2, 0.5), JoinSide(0.4, 3, 3, 0.2), Join(1, 0.1, 10), SegmentFigures(1, 4, 4))
THREE = Joined(G10, JoinSide(1, 6, 6, 1), Join(2, 1, 1), SegmentFigures(1, 5, 5))


def test_golden_g10_a_pair_is_not_charged_for_the_wait_for_its_partner() -> None:
    assert ideal_time(G10) == 11
    assert ideal_departure(G10, (0, 10)) == 18
    assert slowdown(G10, (0, 10), departure=29) == 2
    assert ideal_departure(G10, (0, 0)) == 11


def test_golden_g11_a_join_is_two_virtual_segments() -> None:
    left, right = virtual_segments(G11)
    assert (left.selectivity, left.cost, left.ideal_time) == pytest.approx((1.0, 6.5, 11))
    assert (right.selectivity, right.cost) == pytest.approx((0.4, 5.0))
    assert (rate(left), rate(right)) == pytest.approx((0.153846, 0.08), rel=1e-5)
    assert (rate(left) / 11, rate(right) / 11) == pytest.approx((0.0139860, 0.00727273), rel=1e-5)
    assert float(left.selectivity) / 0.5 == pytest.approx(float(right.selectivity) / 0.2)


def test_three_tuples_pass_through_two_joins() -> None:
    # 11 for the pair, 6 for the third tuple, twice 2 for the second join, and 5 after it.
    assert ideal_time(THREE) == 26
    # The pair is complete at 18 and through the second join at 20; the third tuple does the rest alone.
    assert ideal_departure(THREE, (0, 10, 100)) == 100 + 6 + 2 + 5
    # The third tuple arrives first and is stored at 8; the last of the pair does the rest: 3 + 1 + 4, 2 + 5.
    assert ideal_departure(THREE, (0, 100, 0)) == 100 + 8 + 7
    assert ideal_departure(THREE, (3, 3, 3)) == 3 + 26
    assert slowdown(THREE, (0, 10, 100), departure=113 + 26) == 2


def test_a_join_over_a_join_uses_the_output_rate_of_the_inner_join() -> None:
    # G11 gives 4 pairs a second: 1.0 / .5 from tuples of the left stream, and as many from the right.
    assert output_rate(G11) == pytest.approx(4)
    tree = Joined(G11, JoinSide(0.5, 2, 2, 0.25), Join(1, 0.01, 5), SegmentFigures(1, 3, 3))
    first, second, third = virtual_segments(tree)
    # A tuple of the first stream makes one pair, which meets 10 tuples of the third stream; 0.1 of them
    # match.
    assert float(first.selectivity) == pytest.approx(1.0 * 0.01 * (0.5 * 5 / 0.25))
    assert float(first.cost) == pytest.approx(6.5 + 1.0 * (1 + 0.1 * 3))
    assert float(second.selectivity) == pytest.approx(0.4 * 0.1)
    assert float(third.selectivity) == pytest.approx(0.5 * 0.01 * 4 * 5)
    assert float(third.cost) == pytest.approx(2 + 0.5 * (1 + 0.2 * 3))
    assert {segment.ideal_time for segment in (first, second, third)} == {11 + 2 + 2 + 3}


positive = st.floats(0.1, 5)
shares = st.floats(0.05, 1)
sides = st.builds(JoinSide, shares, positive, positive, positive)
joins = st.builds(Join, positive, shares, positive)
tails = st.builds(SegmentFigures, shares, positive, positive)
trees = st.recursive(sides, lambda below: st.builds(Joined, below, below, joins, tails), max_leaves=5)


class Carried:
    """Parts of a composite on their way through an idle system: a join waits until both parts are there."""

    def __init__(self) -> None:
        self.kept: set[int] = set()

    def passed(self, tree: JoinTree, part: int) -> tuple[float, bool]:
        """Return the time of the part in this tree, and True if the composite of the tree leaves it now."""
        if isinstance(tree, JoinSide):
            return tree.ideal_time, True
        on_left = part < count_sides(tree.left)
        side = tree.left if on_left else tree.right
        time, out = self.passed(side, part if on_left else part - count_sides(tree.left))
        if not out:
            return time, False
        if id(tree) not in self.kept:
            self.kept.add(id(tree))
            return time + tree.join.cost, False
        return time + tree.join.cost + float(tree.tail.ideal_time), True

    def departure(self, tree: JoinTree, arrivals: Sequence[float]) -> float:
        now, out = -np.inf, False
        for part in sorted(range(len(arrivals)), key=lambda part: arrivals[part]):
            took, out = self.passed(tree, part)
            now = max(now, arrivals[part]) + took
        assert out
        return now


@settings(max_examples=60)
@given(trees, st.data())
def test_the_ideal_departure_equals_that_of_a_tuple_by_tuple_execution(
    tree: JoinTree, data: st.DataObject
) -> None:
    count = count_sides(tree)
    times = st.lists(st.integers(0, 20).map(float), min_size=count, max_size=count)
    several = data.draw(st.lists(times, min_size=1, max_size=4))
    found = ideal_departure(tree, np.array(several).T)
    assert np.allclose(found, [Carried().departure(tree, arrivals) for arrivals in several])
    # Not before its last part has passed the rest of the tree, and not after all work done from then on.
    last = np.max(several, axis=1)
    assert np.all(found <= last + ideal_time(tree) + 1e-9)
    assert np.all(slowdown(tree, np.array(several).T, found) == 1)
    # If all parts arrive at once, none waits: the result takes the ideal time, as for a single stream.
    assert ideal_departure(tree, [7.0] * count) == pytest.approx(7 + ideal_time(tree))


@settings(max_examples=60)
@given(trees)
def test_segments_expect_the_output_rate_of_the_tree(tree: JoinTree) -> None:
    gaps = _gaps(tree)
    segments = virtual_segments(tree)
    assert len(segments) == len(gaps)
    by_side = [float(segment.selectivity) / gap for segment, gap in zip(segments, gaps, strict=True)]
    assert sum(by_side) == pytest.approx(output_rate(tree))
    if isinstance(tree, Joined):
        cut = count_sides(tree.left)
        assert sum(by_side[:cut]) == pytest.approx(sum(by_side[cut:]))


def _gaps(tree: JoinTree) -> list[float]:
    return [tree.gap] if isinstance(tree, JoinSide) else _gaps(tree.left) + _gaps(tree.right)

"""Composite tuples of joins, and the segments of a join query: expected figures (P22, P23).

A query is a tree of streams, joins of two subtrees, and the root after the last join. The output of a join
is, for the next join, a tuple of a stream that arrived with the last of its parts.

The slowdown of a composite tuple excludes the wait for its partners: it is relative to the time at which the
tuple would have left an idle system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.charts.segments import SegmentFigures

Numbers: TypeAlias = float | Floats
"""A number, or an array with an entry per composite tuple."""


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One stream up to the first join: expected selectivity and cost, ideal time, mean gap (τ)."""

    selectivity: float
    cost: float
    ideal_time: float
    gap: float


@dataclass(frozen=True, slots=True)
class Join:
    cost: float  # of a tuple: store it on its own side, and probe the other side
    selectivity: float  # of a pair in the window
    window: float


@dataclass(frozen=True, slots=True)
class Joined:
    """Output of a join, up to the next join or the root. `tail` is the segment after the join."""

    left: JoinTree
    right: JoinTree
    join: Join
    tail: SegmentFigures


JoinTree: TypeAlias = JoinSide | Joined


# -- ideal times ------------------------------------------------------------------------------------------


def ideal_time(tree: JoinTree) -> float:
    """Return T: all parts pass their sides and both sides of each join; the result passes what follows."""
    if isinstance(tree, JoinSide):
        return tree.ideal_time
    sides = ideal_time(tree.left) + ideal_time(tree.right)
    return sides + 2 * tree.join.cost + float(tree.tail.ideal_time)


def ideal_departure(tree: JoinTree, arrivals: Sequence[Numbers]) -> Numbers:
    """Return when a composite would leave an idle system, from the arrivals of its parts, left to right.

    Parts are processed one after the other in order of arrival, with ties from left to right. A join that
    still waits for the other side stores a part. The last part of a join carries the result on to the next
    join.
    """
    came = np.asarray(np.broadcast_arrays(*arrivals), np.float64)
    order = np.argsort(came, axis=0, kind="stable")
    work = np.zeros_like(came)
    _add_work(tree, np.argsort(order, axis=0), work, range(len(came)), 0.0)
    done = np.full(came.shape[1:], -np.inf)
    for turn in order:
        here = turn[None]
        done = np.maximum(done, np.take_along_axis(came, here, 0)[0])
        done = done + np.take_along_axis(work, here, 0)[0]
    return done


def _add_work(tree: JoinTree, rank: Int64s, work: Floats, parts: range, then: float) -> None:
    """Add the processing time of each part. `then` is the time after this tree for its output."""
    if isinstance(tree, JoinSide):
        work[parts[0]] += tree.ideal_time + then
        return
    cut = parts.start + count_sides(tree.left)
    for side, below in ((tree.left, range(parts.start, cut)), (tree.right, range(cut, parts.stop))):
        _add_work(side, rank, work, below, tree.join.cost)
    last = rank[parts.start : parts.stop].argmax(axis=0)[None] + parts.start
    onward = np.take_along_axis(work, last, 0) + float(tree.tail.ideal_time) + then
    np.put_along_axis(work, last, onward, 0)


def count_sides(tree: JoinTree) -> int:
    """Return the number of tuples in a composite."""
    return 1 if isinstance(tree, JoinSide) else count_sides(tree.left) + count_sides(tree.right)


def slowdown(tree: JoinTree, arrivals: Sequence[Numbers], departure: Numbers) -> Numbers:
    """Return H: the delay of the composite relative to its ideal time."""
    return 1.0 + (departure - ideal_departure(tree, arrivals)) / ideal_time(tree)


# -- segments ---------------------------------------------------------------------------------------------


class _Onward(NamedTuple):
    """Expected results and time of a tuple from some point to the root."""

    selectivity: float
    cost: float


def output_rate(tree: JoinTree) -> float:
    """Return the output tuples of a tree per time. Of each pair, the later tuple produces the result."""
    if isinstance(tree, JoinSide):
        return tree.selectivity / tree.gap
    pairs = 2 * tree.join.window * output_rate(tree.left) * output_rate(tree.right)
    return pairs * tree.join.selectivity * float(tree.tail.selectivity)


def virtual_segments(tree: JoinTree) -> list[SegmentFigures]:
    """Return a join query as segments of one stream each, from left to right, for single-stream policies."""
    return [
        SegmentFigures(end.selectivity, end.cost, ideal_time(tree)) for end in _ends(tree, _Onward(1.0, 0.0))
    ]


def _ends(tree: JoinTree, behind: _Onward) -> Iterator[_Onward]:
    if isinstance(tree, JoinSide):
        yield _followed(tree.selectivity, tree.cost, behind)
        return
    after = _followed(float(tree.tail.selectivity), float(tree.tail.cost), behind)
    for own, other in ((tree.left, tree.right), (tree.right, tree.left)):
        partners = output_rate(other) * tree.join.window
        yield from _ends(own, _followed(tree.join.selectivity * partners, tree.join.cost, after))


def _followed(selectivity: float, cost: float, behind: _Onward) -> _Onward:
    return _Onward(selectivity * behind.selectivity, cost + selectivity * behind.cost)

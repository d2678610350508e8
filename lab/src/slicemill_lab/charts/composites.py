"""Tuples that joins put together, and the segments of a join query: what to expect of them (P22, P23).

A query is a tree: streams, joins of two subtrees each, and the root behind the last join. What comes out of
a join is to the next one a tuple of a stream, which arrived when the last of its parts did.

A composite tuple is not charged for waiting for its partners: its slowdown compares with the time at which it
would have left an idle system.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from slicemill.scheduling.arrays import Floats, Ints
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
    cost: float  # of a tuple: stored on its own side, looked up on the other
    selectivity: float  # of a pair in the window
    window: float


@dataclass(frozen=True, slots=True)
class Joined:
    """What comes out of a join, up to the next one or to the root: `tail` is what follows the join."""

    left: JoinTree
    right: JoinTree
    join: Join
    tail: SegmentFigures


JoinTree: TypeAlias = JoinSide | Joined


# -- ideal times ------------------------------------------------------------------------------------------


def ideal_time(tree: JoinTree) -> float:
    """T: every part passes its side, both sides of a join pass it, and what they make passes what follows."""
    if isinstance(tree, JoinSide):
        return tree.ideal_time
    sides = ideal_time(tree.left) + ideal_time(tree.right)
    return sides + 2 * tree.join.cost + float(tree.tail.ideal_time)


def ideal_departure(tree: JoinTree, arrivals: Sequence[Numbers]) -> Numbers:
    """When a composite would leave if nothing else were there; `arrivals` of its parts from left to right.

    Parts are done one after the other, as they arrive, of equal ones the left first. Each goes as far as it
    gets: a join that still waits for the other side keeps it, the last part below a join takes what it makes
    on to the next one.
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


def _add_work(tree: JoinTree, rank: Ints, work: Floats, parts: range, then: float) -> None:
    """Charge what each part takes on its way; `then` is what follows this tree for what comes out of it."""
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
    """How many tuples a composite is made of."""
    return 1 if isinstance(tree, JoinSide) else count_sides(tree.left) + count_sides(tree.right)


def slowdown(tree: JoinTree, arrivals: Sequence[Numbers], departure: Numbers) -> Numbers:
    """H: by how much the composite left late, over its ideal time."""
    return 1.0 + (departure - ideal_departure(tree, arrivals)) / ideal_time(tree)


# -- segments ---------------------------------------------------------------------------------------------


class _Onward(NamedTuple):
    """What a tuple stands for from some point to the root: results, and time."""

    selectivity: float
    cost: float


def output_rate(tree: JoinTree) -> float:
    """Tuples per time that come out of a tree: of each pair, the later one makes it."""
    if isinstance(tree, JoinSide):
        return tree.selectivity / tree.gap
    pairs = 2 * tree.join.window * output_rate(tree.left) * output_rate(tree.right)
    return pairs * tree.join.selectivity * float(tree.tail.selectivity)


def virtual_segments(tree: JoinTree) -> list[SegmentFigures]:
    """A join query as segments of one stream each, from left to right, for policies that know only such."""
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

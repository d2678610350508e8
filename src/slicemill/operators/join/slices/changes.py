"""From one set of cuts to another: which slices to merge and where to split (S23).

State is not moved either way, so the order of the steps is free; merging first makes the remaining cuts a
part of the new ones, so that no split can fall between two streams' cuts that do not fit together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

Cut = tuple[float, float]
"""The end of a slice on the left and on the right stream."""


@dataclass(frozen=True, slots=True)
class Split:
    """Cut slice `number` (from 0) at these ages."""

    number: int
    at: Cut


@dataclass(frozen=True, slots=True)
class MergeSlices:
    """Make slice `number` and the one behind it one."""

    number: int


def changes(old: Sequence[Cut], new: Sequence[Cut]) -> Iterator[Split | MergeSlices]:
    """Steps from the slices that end at `old` to those that end at `new`, which end at the same last cut.

    >>> list(changes([(1, 1), (2, 2), (4, 4)], [(2, 2), (3, 3), (4, 4)]))
    [MergeSlices(number=0), Split(number=1, at=(3, 3))]
    """
    wanted = set(new)
    now = list(old)
    for cut in old[:-1]:
        if cut not in wanted:
            number = now.index(cut)
            yield MergeSlices(number)
            del now[number]
    for number, cut in enumerate(new):
        if now[number] != cut:
            yield Split(number, cut)
            now.insert(number, cut)

"""Steps from one set of cuts to another (S23).

A step merges two slices or splits one. No step moves state, so any order is correct. Merging first leaves
only cuts that are also new cuts, so that no split can fall between cuts of the two streams that do not belong
together.
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
    """Merge slice `number` with the next one."""

    number: int


def changes(old: Sequence[Cut], new: Sequence[Cut]) -> Iterator[Split | MergeSlices]:
    """Yield the steps from slices ending at `old` to slices ending at `new`.

    Both end at the same last cut.

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

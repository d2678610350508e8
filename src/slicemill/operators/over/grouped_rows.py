"""Rows of a run by group, the input of running aggregates (`over.running`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.columns import known
from slicemill.columns.intervals import by_partition, last_of_each, running
from slicemill.columns.numbered import touched

Figures: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
Numbers: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows of a run with their group numbers.

    There are `count` groups in all. `touched` are the groups with rows in this run. `order` sorts rows by
    group; `groups` has for each sorted row the index of its group in `touched`. `signs` are 1 for inserted
    and -1 for retracted rows. `tells` marks the rows after which a result is needed. Without these two,
    all rows are inserts and each needs a result.
    """

    numbered: Numbers
    count: int
    touched: Figures
    order: Figures
    groups: Numbers
    signs: Figures | None = None
    tells: Mask | None = None

    @staticmethod
    def of(
        numbered: Numbers, count: int, signs: Figures | None = None, tells: Mask | None = None
    ) -> GroupedRows:
        distinct, local = touched(numbered)
        order, groups, _ = by_partition(local, len(distinct))
        return GroupedRows(numbered, count, distinct, order, groups, signs, tells)

    def in_rows(self, figures: Figures) -> Figures:
        """Return figures of rows sorted by group in the rows' original order."""
        found = np.empty_like(figures)
        found[self.order] = figures
        return found

    def counted(self, chosen: Mask, kept: Figures) -> Figures:
        """Return a running count of chosen rows in each row's group.

        `kept` has the counts of earlier runs, and is updated.
        """
        signs = chosen if self.signs is None else np.where(chosen, self.signs, 0)
        found = running(self.groups, signs[self.order], kept[self.touched])
        self.keep_last(found, kept)
        return self.in_rows(found)

    def keep_last(self, figures: Figures, kept: Figures) -> None:
        """Store the last figure of each group in `kept`."""
        last = last_of_each(self.groups)
        kept[self.touched] = figures[last]


def no_figures() -> Figures:
    return np.zeros(0, np.int64)


def all_known(rows: GroupedRows, arguments: Sequence[pa.Array]) -> Mask:
    chosen = np.ones(len(rows.numbered), np.bool_)
    for argument in arguments:
        chosen &= known(argument)
    return chosen

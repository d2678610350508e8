"""The rows of a run by group, for what is kept of each group (`over.running`)."""

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
    """The rows of a run, each with the number of its group, of so many that there are.

    `touched` are the groups that have rows; `order` and `groups` are of rows by group, as places among these.
    `signs` are 1 for rows that come and -1 for rows that leave; `tells` are the rows after which somebody
    asks. Without them all rows come, and all are asked for.
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
        """Figures of rows by group, as rows came."""
        found = np.empty_like(figures)
        found[self.order] = figures
        return found

    def counted(self, chosen: Mask, kept: Figures) -> Figures:
        """How many chosen rows each row's group has up to it; `kept` is what it had before, and has after."""
        signs = chosen if self.signs is None else np.where(chosen, self.signs, 0)
        found = running(self.groups, signs[self.order], kept[self.touched])
        self.keep_last(found, kept)
        return self.in_rows(found)

    def keep_last(self, figures: Figures, kept: Figures) -> None:
        """Keep of figures of rows by group the last of each group."""
        last = last_of_each(self.groups)
        kept[self.touched] = figures[last]


def no_figures() -> Figures:
    return np.zeros(0, np.int64)


def all_known(rows: GroupedRows, arguments: Sequence[pa.Array]) -> Mask:
    chosen = np.ones(len(rows.numbered), np.bool_)
    for argument in arguments:
        chosen &= known(argument)
    return chosen

"""Retraction protocol: the changes that replace the last emitted version of a result row by the next version.

An operator with changing results stores the last emitted version of each result row. A new version is emitted
as a change. A version that is equal to the last emitted version is suppressed:

    last emitted    next version    changes
    none            (clock, 10)     insert (clock, 10)
    (clock, 10)     (clock, 15)     update_before (clock, 10), update_after (clock, 15)
    (clock, 15)     (clock, 15)     none
    (clock, 15)     none            delete (clock, 15)

If an input row changes several rows at once, deletes precede updates, and updates precede inserts.

Operators that process whole batches use `replace_emitted` and `version_changes`. Operators that process rows
one by one use `IncomingChanges`, `row_changes` and `changes_between`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from slicemill.aggregates.definition import comparable
from slicemill.columns.changelog import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, same_values, with_ops
from slicemill.columns.keys import RowsByNumber
from slicemill.columns.ranges import last_of_each
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.types import Row

K = TypeVar("K")


def replace_emitted(
    emitted: RowsByNumber, numbers: Int64s, groups: Int32s, order: Int64s, new: pa.Table
) -> tuple[pa.Table, Int64s, Int64s]:
    """Replace the last emitted result rows of groups by new versions of these rows.

    `order` has the positions in `new` of the new versions, sorted by group. `groups` has the index in
    `numbers` of each new version's group. Return a table of versions. For each new version, also return the
    positions of the previous version and of the new version in this table. The previous position is -1 for
    the first version of a group.
    """
    indices = emitted.indices[numbers]
    known = indices >= 0
    stored = int(np.count_nonzero(known))
    versions = emitted.added.behind(indices[known], new).combine_chunks()
    first = np.ones(len(order), np.bool_)
    first[1:] = groups[1:] != groups[:-1]
    before = np.where(known, np.cumsum(known) - 1, -1)[groups]
    before = np.where(first, before, stored + np.roll(order, 1))
    last = last_of_each(groups)
    emitted.replace(numbers[groups[last]], new.take(pa.array(order[last])))
    return versions, before, stored + order


def version_changes(
    causes: pa.Table, versions: pa.Table, before: Int64s, after: Int64s, compared: Sequence[str] = ()
) -> pa.Table:
    """Return the changelog rows that replace old versions of result rows by new versions.

    The old versions are the rows `before` of `versions`, and the new versions are the rows `after`. Position
    -1 stands for no version. The column `_op` has the operation of each change. `causes` has one row per
    change, with the system columns first. Updates that leave all columns of `compared` equal are suppressed.
    """
    was, is_ = before >= 0, after >= 0
    if compared:
        both = np.flatnonzero(was & is_)
        same = np.ones(len(both), np.bool_)
        for name in compared:
            same &= same_values(versions.column(name), before[both], after[both])
        if same.any():
            was[both[same]] = is_[both[same]] = False
    chosen = np.flatnonzero(np.stack([was, is_], axis=1))
    positions = np.stack([before, after], axis=1).reshape(-1)[chosen]
    ops = np.stack([np.where(is_, UPDATE_BEFORE, DELETE), np.where(was, UPDATE_AFTER, INSERT)], axis=1)
    caused, taken = causes.take(pa.array(chosen // 2)), versions.take(pa.array(positions))
    rows = pa.table([*caused.columns, *taken.columns], names=[*causes.column_names, *versions.column_names])
    return with_ops(rows, ops.reshape(-1)[chosen])


@dataclass(slots=True)
class IncomingChanges:
    """Reader of changelog rows that arrive one by one.

    If `retracts` is set, the first column of a row is its operation. Otherwise all rows are inserts. `before`
    is an update_before row that waits for its update_after row.
    """

    retracts: bool
    before: Row | None = None

    def read(self, row: Row) -> tuple[Row | None, Row | None] | None:
        """Return the retracted row and the inserted row of a change, with their operations.

        Return None for an update_before row, because it is returned together with its update_after row.
        """
        op = row[0] if self.retracts else "insert"
        if op == "update_before":
            self.before = row
            return None
        if op == "delete":
            return row, None
        before, self.before = self.before, None
        return before, row


def row_changes(before: Row | None, now: Row | None) -> Sequence[Row]:
    """Return the changes that replace the version `before` of a result row by the version `now`.

    None means that the row does not exist.
    """
    if before is None:
        return () if now is None else (("insert", *now),)
    if now is None:
        return (("delete", *before),)
    if comparable(before) == comparable(now):
        return ()
    return (("update_before", *before), ("update_after", *now))


def changes_between(before: Mapping[K, Row], now: Mapping[K, Row]) -> Iterator[Row]:
    """Yield the changes that replace the rows of `before` by the rows of `now` with the same keys.

    Deletes precede updates, and updates precede inserts.
    """
    for key, row in before.items():
        if key not in now:
            yield from row_changes(row, None)
    for key, row in before.items():
        if key in now:
            yield from row_changes(row, now[key])
    for key, row in now.items():
        if key not in before:
            yield from row_changes(None, row)

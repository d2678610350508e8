"""Sort and merge tuples by (`_ts`, `_seq`), copying rows only if necessary.

`_ts` is the timestamp of a tuple, and `_seq` numbers tuples with equal timestamps. A *tie column* is an extra
sort key of result rows that several partitions produce.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import SEQ, TS
from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s

# Slicing one sorted sequence out of a table takes about as long as copying this number of rows.
_ROWS_PER_RUN = 1_000
_FEW_TABLES = 8

_INT64 = pa.int64()


class OrderError(SlicemillError):
    """Error: a table is not sorted by (`_ts`, `_seq`), or has no timestamps."""


def time_range(table: pa.Table) -> tuple[int | None, int | None]:
    """Return the timestamp range of a sorted table.

    Both timestamps are None for an empty table. Raise OrderError if the table is not sorted.
    """
    if table.num_rows == 0:
        return None, None
    ts = _int64(table, TS)
    later = ts[1:] > ts[:-1]
    if not later.all() and not (later | _ties_in_order(ts, _sequence(table))).all():
        raise OrderError(f"rows must be sorted by ({TS}, {SEQ}); sort the table before it is appended")
    return int(ts[0]), int(ts[-1])


def merge_sorted(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge tables that are each sorted by (`_ts`, `_seq`).

    Rows with equal keys keep the order of the tables. If each table starts after the end of the previous
    table, no row is copied.
    """
    filled = [table for table in tables if table.num_rows] or tables[:1]
    if len(filled) == 1:
        return filled[0]
    # A stored table has only the columns that queries needed when the table was stored.
    alike = all(table.schema.equals(filled[0].schema) for table in filled)
    whole = pa.concat_tables(filled, promote_options="none" if alike else "default")
    return whole if _follow_each_other(filled, whole) else in_order(whole)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows by (`_ts`, `_seq`).

    A sorted table is returned unchanged. If the rows are in long sorted sequences, such as the rows of files
    or partitions, these sequences are reordered as slices and no row is copied.
    """
    return take_rows(table, order_of(*_keys(table)))


def order_of(ts: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the positions of rows in the order of (ts, seq)."""
    order = np.argsort(ts, kind="stable")
    sorted_ts, sorted_seq = ts[order], seq[order]
    if ((sorted_ts[1:] == sorted_ts[:-1]) & (sorted_seq[1:] < sorted_seq[:-1])).any():
        return np.lexsort((seq, ts))
    return order


def take_rows(table: pa.Table, order: NDArray[np.intp]) -> pa.Table:
    """Return the rows of a table in this order, as slices where rows are adjacent."""
    if len(order) == 0:
        return table.slice(0, 0)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(order) != 1) + 1))
    if len(starts) == 1 and len(order) == table.num_rows:
        return table
    if len(starts) * _ROWS_PER_RUN > len(order):
        return table.take(order)
    ends = np.append(starts[1:], len(order))
    return pa.concat_tables(
        table.slice(first, rows)
        for first, rows in zip(order[starts].tolist(), (ends - starts).tolist(), strict=True)
    )


def _keys(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return _int64(table, TS), _sequence(table)


def _sequence(table: pa.Table) -> NDArray[np.int64]:
    found = table.schema.get_field_index(SEQ) >= 0
    return _int64(table, SEQ) if found else np.zeros(table.num_rows, np.int64)


def _ties_in_order(ts: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mark rows that tie with the previous row in `_ts` and do not precede it in `_seq`."""
    tied: NDArray[np.bool_] = (ts[1:] == ts[:-1]) & (seq[1:] >= seq[:-1])
    return tied


def _int64(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name)
    if column.type != _INT64 or column.null_count:
        raise OrderError(f"{name} must be int64 without NULL; rows that have none belong in _errors")
    numbers: NDArray[np.int64] = (column.chunk(0) if column.num_chunks == 1 else column).to_numpy()
    return numbers


def _follow_each_other(tables: Sequence[pa.Table], whole: pa.Table) -> bool:
    """Return True if no table starts before the previous table ends.

    `whole` has the rows of all tables.
    """
    if len(tables) <= _FEW_TABLES:
        ends = [_ends(table) for table in tables]
        return all(before[1] <= after[0] for before, after in pairwise(ends))
    # Copying two columns of all rows is faster than inspecting many tables.
    ts, seq = _keys(whole)
    starts = np.cumsum([table.num_rows for table in tables])[:-1]
    later, tied = ts[starts] > ts[starts - 1], ts[starts] == ts[starts - 1]
    return bool((later | (tied & (seq[starts] >= seq[starts - 1]))).all())


def _ends(table: pa.Table) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return (`_ts`, `_seq`) of the first and of the last row."""
    ts, seq = _keys(table)
    return (int(ts[0]), int(seq[0])), (int(ts[-1]), int(seq[-1]))


# Tie columns: sort keys that merge result rows of several partitions
#
# If one input row causes several result rows, these are numbered in the low bits of `_seq` (`columns.order`).
# If several partitions produce these rows, no partition can determine the numbers. Each partition then stores
# the sort keys of its rows in extra columns, the *tie columns*. All result rows of one input row are in one
# log epoch, which is what one commit appended to a log. So `storage.log` sorts the rows of an epoch when it
# is read, numbers them and drops the tie columns.
#
#     subtask 0   _ts  _seq  _tie_0_8  _tie_1_8          as read   _ts     _seq
#              700     5        20        11                    700   5·2⁸
#              700     5        60        14                    700   5·2⁸ + 1
#     subtask 1   700     5        40         9                    700   5·2⁸ + 2
#
# The name of a tie column ends with the number of bits for row numbers. If there are more rows than numbers,
# the last rows share the last number.


_PREFIX = "_tie_"


def tie_name(index: int, bits: int) -> str:
    """Return the name of an extra sort key's column; index 0 is the primary sort key."""
    return f"{_PREFIX}{index}_{bits}"


def has_ties(columns: Iterable[str]) -> bool:
    """Return True if a table has extra sort keys for merging partitions."""
    return any(name.startswith(_PREFIX) for name in columns)


def ties_of(table: pa.Table) -> list[str]:
    """Return the names of the extra sort key columns, the primary sort key first."""
    return sorted((name for name in table.column_names if name.startswith(_PREFIX)), key=_tie_number)


def merge_ties(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge rows of several partitions by their extra sort keys.

    Rows with equal (`_ts`, `_seq`) are numbered in the low bits of `_seq`.
    """
    table = pa.concat_tables(tables)
    ties = ties_of(table)
    order = np.lexsort([table.column(name).to_numpy() for name in (*reversed(ties), SEQ, TS)])
    bits = int(ties[0].rpartition("_")[2])
    return number_ties(table.drop_columns(ties).take(pa.array(order)), bits)


def number_ties(table: pa.Table, bits: int) -> pa.Table:
    """Number rows with equal (`_ts`, `_seq`) in the low bits of `_seq`."""
    if not bits:
        return table
    times, seqs = (table.column(name).to_numpy() for name in (TS, SEQ))
    rows = np.arange(len(seqs))
    again = np.zeros(len(seqs), np.bool_)
    again[1:] = (times[1:] == times[:-1]) & (seqs[1:] == seqs[:-1])
    number = rows - np.maximum.accumulate(np.where(again, 0, rows))
    return with_seqs(table, (seqs << bits) + np.minimum(number, (1 << bits) - 1))


def _tie_number(name: str) -> int:
    return int(name.split("_")[2])


def with_seqs(table: pa.Table, seqs: Int64s) -> pa.Table:
    index = table.schema.get_field_index(SEQ)
    return table.set_column(index, table.schema.field(index), pa.array(seqs))

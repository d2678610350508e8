"""Sort and merge tuples by (`_ts`, `_seq`), copying rows only if necessary."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.errors import SlicemillError
from slicemill.storage.arrow_schema import SEQ, TS

# Handling a run takes about as long as copying this many rows.
_ROWS_PER_RUN = 1_000
_FEW_TABLES = 8

_INT64 = pa.int64()


class OrderError(SlicemillError):
    """Table that is not sorted by (`_ts`, `_seq`), or has no timestamps."""


def time_range(table: pa.Table) -> tuple[int | None, int | None]:
    """Return the timestamp range of a sorted table.

    Both are None without rows. Raises OrderError if the table is not sorted.
    """
    if table.num_rows == 0:
        return None, None
    ts = _int64(table, TS)
    later = ts[1:] > ts[:-1]
    if not later.all() and not (later | _tied_in_order(ts, _sequence(table))).all():
        raise OrderError(f"rows must be sorted by ({TS}, {SEQ}); sort the table before it is appended")
    return int(ts[0]), int(ts[-1])


def merge_sorted(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge tables that are each sorted by (`_ts`, `_seq`).

    Rows with equal keys keep the order of the tables. Nothing is copied if no table starts before the end of
    the previous one.
    """
    filled = [table for table in tables if table.num_rows] or tables[:1]
    if len(filled) == 1:
        return filled[0]
    # Tables have only the columns that were needed when they were stored.
    alike = all(table.schema.equals(filled[0].schema) for table in filled)
    whole = pa.concat_tables(filled, promote_options="none" if alike else "default")
    return whole if _follow_each_other(filled, whole) else in_order(whole)


def in_order(table: pa.Table) -> pa.Table:
    """Sort rows by (`_ts`, `_seq`).

    A sorted table is returned as it is. Files and partitions are usually sorted in themselves. If rows are in
    long sorted runs, the runs are reordered and no row is copied.
    """
    return taken(table, order_of(*_keys(table)))


def order_of(ts: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the positions of rows in the order of (ts, seq)."""
    order = np.argsort(ts, kind="stable")
    sorted_ts, sorted_seq = ts[order], seq[order]
    if ((sorted_ts[1:] == sorted_ts[:-1]) & (sorted_seq[1:] < sorted_seq[:-1])).any():
        return np.lexsort((seq, ts))
    return order


def taken(table: pa.Table, order: NDArray[np.intp]) -> pa.Table:
    """Return the rows at some positions, as slices if possible."""
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


def _tied_in_order(ts: NDArray[np.int64], seq: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True where a row ties with the previous one, in order."""
    tied: NDArray[np.bool_] = (ts[1:] == ts[:-1]) & (seq[1:] >= seq[:-1])
    return tied


def _int64(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name)
    if column.type != _INT64 or column.null_count:
        raise OrderError(f"{name} must be int64 without NULL; rows that have none belong in _errors")
    numbers: NDArray[np.int64] = (column.chunk(0) if column.num_chunks == 1 else column).to_numpy()
    return numbers


def _follow_each_other(tables: Sequence[pa.Table], whole: pa.Table) -> bool:
    """Return True if the tables follow each other in time.

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
    """Return the keys of the first and the last row."""
    ts, seq = _keys(table)
    return (int(ts[0]), int(seq[0])), (int(ts[-1]), int(seq[-1]))

"""Ties: sort keys that merge result rows of several partitions.

The result rows of one input row are numbered (`columns.order`). A single partition numbers them at once. If
several partitions produce some of the rows, none knows the numbers. Each partition then stores the sort keys
of its rows in extra columns, the *ties*. All rows of one input row are in one epoch, so a reader of the log
sorts the rows of an epoch, numbers them and drops the ties. `storage.epochs` does so for all readers.

    cell 0   _ts  _seq  _tie_0_8  _tie_1_8          as read   _ts     _seq
             700     5        20        11                    700   5·2⁸
             700     5        60        14                    700   5·2⁸ + 1
    cell 1   700     5        40         9                    700   5·2⁸ + 2

The name of a tie ends with the number of bits of row numbers. Rows beyond that range share the last number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.storage.arrow_schema import SEQ, TS

Integers = NDArray[np.int64]
_PREFIX = "_tie_"


def tie_name(place: int, bits: int) -> str:
    """Return the name of a tie column; 0 is the primary key."""
    return f"{_PREFIX}{place}_{bits}"


def has_ties(columns: Iterable[str]) -> bool:
    """Return True if there is a tie column."""
    return any(name.startswith(_PREFIX) for name in columns)


def ties_of(table: pa.Table) -> list[str]:
    """Return the tie columns, the primary sort key first."""
    return sorted((name for name in table.column_names if name.startswith(_PREFIX)), key=_place)


def untied(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the partitions' rows into the order of one partition."""
    table = pa.concat_tables(tables)
    ties = ties_of(table)
    order = np.lexsort([table.column(name).to_numpy() for name in (*reversed(ties), SEQ, TS)])
    bits = int(ties[0].rpartition("_")[2])
    return fanned(table.drop_columns(ties).take(pa.array(order)), bits)


def fanned(table: pa.Table, bits: int) -> pa.Table:
    """Number sorted rows with equal keys, in this many bits of `_seq`."""
    if not bits:
        return table
    times, seqs = (table.column(name).to_numpy() for name in (TS, SEQ))
    rows = np.arange(len(seqs))
    again = np.zeros(len(seqs), np.bool_)
    again[1:] = (times[1:] == times[:-1]) & (seqs[1:] == seqs[:-1])
    number = rows - np.maximum.accumulate(np.where(again, 0, rows))
    return with_seqs(table, (seqs << bits) + np.minimum(number, (1 << bits) - 1))


def _place(name: str) -> int:
    return int(name.split("_")[2])


def with_seqs(table: pa.Table, seqs: Integers) -> pa.Table:
    place = table.schema.get_field_index(SEQ)
    return table.set_column(place, table.schema.field(place), pa.array(seqs))

"""Ties: rows of one cause that several cells have found, in the order in which one cell finds them.

The rows of a cause are numbered (`columns.order`). One cell does so at once. Where several find some of them,
none knows its rows' numbers: it stores what they go by in columns beside them, the *ties*. All rows of a
cause are of one epoch, so whoever reads a log puts the rows of an epoch in order, numbers them and leaves
the ties out. That happens in `storage.epochs`, and nobody else sees a tie.

    cell 0   _ts  _seq  _tie_0_8  _tie_1_8          as read   _ts     _seq
             700     5        20        11                    700   5·2⁸
             700     5        60        14                    700   5·2⁸ + 1
    cell 1   700     5        40         9                    700   5·2⁸ + 2

A tie's name ends with the bits that numbers of rows have: the last of them stands for all that come later.
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
    """The column of one of the ties by which rows come, the first one first."""
    return f"{_PREFIX}{place}_{bits}"


def has_ties(columns: Iterable[str]) -> bool:
    """Are there ties among some columns?"""
    return any(name.startswith(_PREFIX) for name in columns)


def ties_of(table: pa.Table) -> list[str]:
    """The columns of ties, the first one first."""
    return sorted((name for name in table.column_names if name.startswith(_PREFIX)), key=_place)


def untied(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all cells, as one cell gives them; rows that are equal in everything stay as they are."""
    table = pa.concat_tables(tables)
    ties = ties_of(table)
    order = np.lexsort([table.column(name).to_numpy() for name in (*reversed(ties), SEQ, TS)])
    bits = int(ties[0].rpartition("_")[2])
    return fanned(table.drop_columns(ties).take(pa.array(order)), bits)


def fanned(table: pa.Table, bits: int) -> pa.Table:
    """Rows in order, those of one cause numbered in so many bits."""
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

"""State rows of an operator, in a list of immutable tables (pieces).

A piece is dropped when none of its rows is needed, and rewritten when most rows are not needed. Small pieces
are merged, so that a row is written only a few times, for any number of micro-batches. A *slice* is a piece
that a checkpoint stores in a file of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

# Pieces with this number of rows are not merged. They are dropped as a whole when all rows have expired.
_LARGE = 100_000


def concat_with_nulls(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables. Missing columns are filled with NULL.

    A column is missing from rows that were stored before the column was added to the stream. Queries that
    store such rows are older than the column and do not read it.
    """
    return pa.concat_tables(tables, promote_options="default")


def keep_needed(
    pieces: Sequence[Slice], new: pa.Table, needed: NDArray[np.bool_], exactly: bool = False
) -> list[Slice]:
    """Append new state rows, and drop tables of the state without needed rows.

    The mask `needed` covers the rows of all pieces, then the rows of `new`. Unless `exactly` is set, unneeded
    rows may remain for a while.
    """
    tidy: list[Slice] = []
    start = 0
    for piece in (*pieces, Slice(new)):
        rows = len(piece.table)
        useful = needed[start : start + rows]
        start += rows
        count = int(useful.sum())
        if count:
            anew = count < rows if exactly else 2 * count < rows
            _append(tidy, Slice(piece.table.filter(pa.array(useful)).combine_chunks()) if anew else piece)
    return tidy


def drop_first_rows(pieces: Sequence[Slice], new: pa.Table, passed: int) -> tuple[list[Slice], int]:
    """Append new state rows, and drop the first `passed` rows of the state.

    The second result is the number of these rows that are still in the pieces.
    """
    left = [piece for piece in (*pieces, Slice(new)) if len(piece.table)]
    while left and passed >= len(left[0].table):
        passed -= len(left.pop(0).table)
    if left and 2 * passed > len(left[0].table):
        left[0] = Slice(left[0].table.slice(passed).combine_chunks())
        passed = 0
    tidy: list[Slice] = []
    for piece in left:
        _append(tidy, piece)
    return tidy, passed


def _append(tidy: list[Slice], piece: Slice) -> None:
    while tidy and _belong_together(tidy[-1], piece):
        piece = Slice(concat_with_nulls([tidy.pop().table, piece.table]).combine_chunks())
    tidy.append(piece)


def _belong_together(older: Slice, newer: Slice) -> bool:
    return len(older.table) < 2 * len(newer.table) and len(older.table) + len(newer.table) < _LARGE


# Slices: immutable tables with rows of an operator's state
#
# Growing state is a list of tables that never change. So each slice is stored once, and later checkpoints
# only reference it. A restored slice is read on first access.


class Slice:
    """Immutable table of state rows.

    `stored` is the storage's reference to the file of the slice, None for a new slice. After a slice that
    `spills` is stored, it is mapped from its file and no longer held in memory.
    """

    def __init__(
        self, table: pa.Table | Callable[[], pa.Table], stored: object = None, *, spills: bool = False
    ) -> None:
        self._table = table
        self._spills = spills
        self.stored = stored

    @property
    def table(self) -> pa.Table:
        if not isinstance(self._table, pa.Table):
            self._table = self._table()
        return self._table

    def set_stored(self, stored: object, read: Callable[[], pa.Table]) -> None:
        """Record the file of this stored table; `read` maps the file into memory."""
        self.stored = stored
        if self._spills:
            # Map the file at once: the mapping stays valid if the file is deleted.
            self._table = read()

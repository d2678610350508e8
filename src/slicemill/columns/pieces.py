"""Rows that are kept from run to run, in few pieces that are written once.

A piece goes when none of its rows is needed any more, and is written anew when most of them are not. Small
pieces are put together, so that a row is written a few times at most, however often there is a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.storage.slice import Slice

# Pieces of this size are left as they are: they go as a whole when their time has passed.
_LARGE = 100_000


def together(tables: Sequence[pa.Table]) -> pa.Table:
    """Rows one behind the other. Those that were kept before their stream got a column have NULL in it: it is
    never looked at, as who keeps them was there before the column."""
    return pa.concat_tables(tables, promote_options="default")


def kept(
    pieces: Sequence[Slice], new: pa.Table, needed: NDArray[np.bool_], exactly: bool = False
) -> list[Slice]:
    """`needed` says it of the rows of all pieces and then of the new ones.

    Others may stay for a while, unless `exactly` those are wanted.
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


def kept_from(pieces: Sequence[Slice], new: pa.Table, passed: int) -> tuple[list[Slice], int]:
    """The same where exactly the first rows are not needed: also how many of these are still there."""
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
        piece = Slice(together([tidy.pop().table, piece.table]).combine_chunks())
    tidy.append(piece)


def _belong_together(older: Slice, newer: Slice) -> bool:
    return len(older.table) < 2 * len(newer.table) and len(older.table) + len(newer.table) < _LARGE

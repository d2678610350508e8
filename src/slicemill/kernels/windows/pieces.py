"""Rows that are kept from run to run, in few pieces that are written once.

A piece goes when none of its rows is needed any more, and is written anew when most of them are not. Small
pieces are put together, so that a row is written a few times at most, however often there is a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.kernels.slice import Slice

# Pieces of this size are left as they are: they go as a whole when their time has passed.
_LARGE = 100_000


def kept(pieces: Sequence[Slice], new: pa.Table, needed: NDArray[np.bool_]) -> list[Slice]:
    """`needed` says it of the rows of all pieces and then of the new ones."""
    tidy: list[Slice] = []
    start = 0
    for piece in (*pieces, Slice(new)):
        rows = len(piece.table)
        useful = needed[start : start + rows]
        start += rows
        count = int(useful.sum())
        if not count:
            continue
        current = piece
        if 2 * count < rows:
            current = Slice(piece.table.filter(pa.array(useful)).combine_chunks())
        while tidy and _belong_together(tidy[-1], current):
            current = Slice(pa.concat_tables([tidy.pop().table, current.table]).combine_chunks())
        tidy.append(current)
    return tidy


def _belong_together(older: Slice, newer: Slice) -> bool:
    return len(older.table) < 2 * len(newer.table) and len(older.table) + len(newer.table) < _LARGE

"""The order of rows: by (`_ts`, `_seq`), whatever the number of cells.

Every row that an operator gives has the number of what caused it, so that the rows of any number of cells,
put together by (`_ts`, `_seq`), come in the order in which one cell gives them:

    rows                                      `_seq`
    of a declared stream                      the tuple's number, given by the intake
    selection, projection                     that of the tuple
    look-up                                   that of the tuple, then that of the match
    aggregate with OVER, or of all history    that of the tuple; of a tuple that leaves its window, and of a
                                              group's last words (its first tuple's), *behind* the others
    changes of groups, first rows, DISTINCT   that of the tuple, for both halves of an update; EMIT EVERY:
                                              that of a key's first change; what reads changes counts anew
    window of FROM at its end                 that of the group's first tuple in the window
    runs of a partition at a slide            that of the first tuple that is shown of the partition
    join                                      that of the later tuple, *behind* if it is of the second input;
                                              then by the other tuple, oldest first
    union of declared streams that is joined  that of the tuple, behind those of the inputs before its own
    other unions, classifier, all without     counted anew, in the order of their rows
    keys

Of two inputs, the first comes first at equal timestamps; a union's rows come by (timestamp, input, `_seq`).

Numbers of different streams do not compare, and a tuple may cause many rows. So numbers grow to both ends:

    63        bits                     0
    [ 0 … | behind | number | row of it ]       *behind* sets a bit that no number of the inputs has;
                                                rows of one cause are numbered in bits of their own

A stream's own numbers have `SEQ_BITS` bits; from the query graph follows how many they have behind operators.
Where an operator finds no room on the right, rows of one cause share a number: they come from one cell, and
stay together in its order, until an operator splits them by another key. Where there is none on the left,
numbers lose bits on the right.

Where the rows of one cause come from several cells, they are numbered by whoever reads them (`storage.ties`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.sequence_bits import MOST_BITS, SEQ_BITS, fanned_bits, ranked_bits
from slicemill.storage.ties import fanned, ties_of, untied, with_seqs

Integers = NDArray[np.int64]


def ranked(seqs: Integers, rank: Integers | int, bits: int, ranks: int = 1) -> Integers:
    """Numbers of so many bits that come by their rank first; `ranks` is how many bits ranks have."""
    lost = max(0, bits + ranks - MOST_BITS)
    return np.asarray((seqs >> lost) + (np.asarray(rank, np.int64) << (bits - lost)))


def fanned_out(table: pa.Table, bits: int) -> pa.Table:
    """Rows in order, those of one cause numbered: no two have the same (`_ts`, `_seq`), if there is room."""
    return fanned(table, fanned_bits(bits) - bits)


@dataclass(frozen=True, slots=True)
class Numbering:
    """How an operator numbers rows whose causes' numbers have so many `bits`.

    It `ranks` rows if some come behind others of their timestamp, and `fans` out if a cause has several rows.
    """

    bits: int = SEQ_BITS
    ranks: bool = False
    fans: bool = False

    def applied(self, table: pa.Table, rank: Integers | NDArray[np.bool_] | int = 0) -> pa.Table:
        bits = self.bits
        if self.ranks:
            ranks = np.asarray(rank, np.int64)
            table = with_seqs(table, ranked(table.column("_seq").to_numpy(), ranks, bits))
            bits = ranked_bits(bits)
        return fanned_out(table, bits) if self.fans else table


def put_together(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all cells in order; those of one cause stay as they are, unless ties say how they come."""
    filled = [table for table in tables if table.num_rows] or tables[:1]
    if ties_of(filled[0]):
        return untied(filled)
    whole = pa.concat_tables(filled)
    times, seqs = (whole.column(name).to_numpy() for name in ("_ts", "_seq"))
    falls = (times[1:] < times[:-1]) | ((times[1:] == times[:-1]) & (seqs[1:] < seqs[:-1]))
    return whole.take(pa.array(np.lexsort((seqs, times)))) if falls.any() else whole


def renumbered(table: pa.Table, first: int) -> pa.Table:
    """Rows in order, numbered from `first` on."""
    return with_seqs(table, np.arange(first, first + table.num_rows, dtype=np.int64))

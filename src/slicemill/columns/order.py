"""Row order: by (`_ts`, `_seq`), for any number of cells.

Each output row of an operator has the number of the row that caused it. So if the rows of several cells
(partitions) are merged by (`_ts`, `_seq`), they are in the order that one cell would produce:

    rows                                      `_seq`
    of a declared stream                      the tuple's number, assigned by the intake
    selection, projection                     that of the tuple
    look-up                                   that of the tuple, then that of the match
    aggregate with OVER, or of all history    that of the tuple; *behind* the others: rows of a tuple that
                                              expires, and the final row of a group (its first tuple's)
    changes of groups, first rows, DISTINCT   that of the tuple, for both halves of an update; EMIT EVERY:
                                              that of a key's first change; readers of changes renumber
    window of FROM at its end                 that of the group's first tuple in the window
    runs of a partition at a slide            that of the first tuple of the partition that is shown
    join                                      that of the later tuple, *behind* if it is of the second input;
                                              then by the other tuple, oldest first
    union of declared streams that is joined  that of the tuple, behind those of the inputs before its own
    other unions, classifier, all without     renumbered in the order of their rows
    keys

At equal timestamps, rows of the first input precede rows of the second. Rows of a union are ordered by
(timestamp, input, `_seq`).

Numbers of different streams cannot be compared, and a tuple may cause many rows. So numbers get bits at
both ends:

    63        bits                     0
    [ 0 … | behind | number | row of it ]       *behind* sets a bit above all input numbers;
                                                rows with one cause are numbered in the low bits

Numbers of a stream have `SEQ_BITS` bits. The query graph determines how many bits they have after each
operator. If there is no room on the right, rows with one cause share a number. Such rows are in one cell
and keep the cell's order, until an operator repartitions them by another key. If there is no room on the
left, numbers lose bits on the right.

If rows with one cause come from several cells, their reader numbers them (`storage.ties`).
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
    """Return numbers ordered by rank, then by number.

    Numbers have `bits` bits and ranks `ranks` bits.
    """
    lost = max(0, bits + ranks - MOST_BITS)
    return np.asarray((seqs >> lost) + (np.asarray(rank, np.int64) << (bits - lost)))


def fanned_out(table: pa.Table, bits: int) -> pa.Table:
    """Number the rows with one cause.

    If there is room for the bits, all (`_ts`, `_seq`) become distinct.
    """
    return fanned(table, fanned_bits(bits) - bits)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Numbering of an operator's output rows.

    Numbers of the causes have `bits` bits. `ranks` is set if some rows follow others of their timestamp,
    and `fans` if a cause may have several rows.
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
    """Merge the rows of all cells in order.

    Rows with equal numbers keep their order, unless ties define it.
    """
    filled = [table for table in tables if table.num_rows] or tables[:1]
    if ties_of(filled[0]):
        return untied(filled)
    whole = pa.concat_tables(filled)
    times, seqs = (whole.column(name).to_numpy() for name in ("_ts", "_seq"))
    falls = (times[1:] < times[:-1]) | ((times[1:] == times[:-1]) & (seqs[1:] < seqs[:-1]))
    return whole.take(pa.array(np.lexsort((seqs, times)))) if falls.any() else whole


def renumbered(table: pa.Table, first: int) -> pa.Table:
    """Number rows consecutively from `first`."""
    return with_seqs(table, np.arange(first, first + table.num_rows, dtype=np.int64))

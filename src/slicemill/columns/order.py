"""Row order: by (`_ts`, `_seq`), for any number of subtasks.

Each output row of an operator has the `_seq` number of the input row that caused it. So if the rows of
several subtasks (partitions) are merged by (`_ts`, `_seq`), they are in the order that one subtask would
produce:

    output rows                               `_seq`
    declared stream                           number of the tuple, assigned by the intake
    selection, projection                     as the input tuple
    look-up                                   as the input tuple, then by match
    aggregate with OVER, or of all history    as the input tuple; *behind* all other rows: rows for an
                                              expired tuple, and a group's final row (as its first tuple)
    changes of groups, first rows, DISTINCT   as the input tuple, for both rows of an update; EMIT EVERY:
                                              as the first change of the key; readers of changes renumber
    window of FROM at its end                 as the group's first tuple in the window
    runs of a partition at a slide            as the first tuple of the partition in the result
    join                                      as the later tuple, *behind* if it is of the second input;
                                              then by the other tuple, oldest first
    union of declared streams in a join       as the tuple, behind the rows of earlier inputs
    other unions, classifier, all without     consecutive numbers in the order of rows
    keys

At equal timestamps, rows of the first input precede rows of the second. Rows of a union are ordered by
(timestamp, input, `_seq`).

Numbers of different streams cannot be compared, and a tuple may cause several rows. So numbers get
additional bits at both ends:

    63        bits                     0
    [ 0 … | behind | number | output row ]      *behind* sets a bit above all input numbers;
                                                rows of one input row are numbered in the low bits

Numbers of a stream have `SEQ_BITS` bits. The query graph determines the number of bits after each operator.
If no bits are left at the low end, the output rows of one input row share a number. Such rows are in one
subtask and keep the subtask's order, until an operator repartitions them by another key. If no bits are left
at the high end, numbers lose low bits.

If several subtasks produce output rows of one input row, the reader numbers these rows (`columns.merge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.keys import to_array
from slicemill.columns.merge import merge_ties, number_ties, ties_of, with_seqs
from slicemill.columns.sequence_bits import MOST_BITS, SEQ_BITS, fan_out_bits, rank_bits
from slicemill.kernels.arrays import Int64s
from slicemill.kernels.kernel import kernel


def rank_seqs(seqs: Int64s, rank: Int64s | int, bits: int, ranks: int = 1) -> Int64s:
    """Return sequence numbers that sort by rank, then by `_seq`.

    `seqs` have `bits` bits, and ranks have `ranks` bits.
    """
    lost = max(0, bits + ranks - MOST_BITS)
    return np.asarray((seqs >> lost) + (np.asarray(rank, np.int64) << (bits - lost)))


def fan_out(table: pa.Table, bits: int) -> pa.Table:
    """Assign distinct `_seq` to the output rows of each input row, in the low bits.

    All pairs (`_ts`, `_seq`) become distinct if there are enough bits.
    """
    return number_ties(table, fan_out_bits(bits) - bits)


@dataclass(frozen=True, slots=True)
class Numbering:
    """Rule for the sequence numbers (`_seq`) of an operator's output rows.

    `_seq` of the input has `bits` bits. `ranks` is set if some rows are ordered behind other rows of their
    timestamp, and `fans` if an input row may cause several rows.
    """

    bits: int = SEQ_BITS
    ranks: bool = False
    fans: bool = False

    def apply(self, table: pa.Table, rank: Int64s | NDArray[np.bool_] | int = 0) -> pa.Table:
        bits = self.bits
        if self.ranks:
            ranks = np.asarray(rank, np.int64)
            table = with_seqs(table, rank_seqs(table.column("_seq").to_numpy(), ranks, bits))
            bits = rank_bits(bits)
        return fan_out(table, bits) if self.fans else table


def merge_subtasks(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of all subtasks by (`_ts`, `_seq`).

    Rows with equal numbers keep their order, unless extra sort keys (tie columns) define the order.
    """
    filled = [table for table in tables if table.num_rows] or tables[:1]
    if ties_of(filled[0]):
        return merge_ties(filled)
    whole = pa.concat_tables(filled)
    times, seqs = (whole.column(name).to_numpy() for name in ("_ts", "_seq"))
    falls = (times[1:] < times[:-1]) | ((times[1:] == times[:-1]) & (seqs[1:] < seqs[:-1]))
    return whole.take(pa.array(np.lexsort((seqs, times)))) if falls.any() else whole


def renumber(table: pa.Table, first: int) -> pa.Table:
    """Number rows consecutively from `first`."""
    return with_seqs(table, np.arange(first, first + table.num_rows, dtype=np.int64))


# ORDER BY of whole columns
#
# NULL is the smallest value and NaN the greatest value, as in Spark SQL.


def order_codes(column: pa.Array | pa.ChunkedArray, descending: bool) -> Int64s:
    """Return integers that sort like the values of a column."""
    array = to_array(column)
    kind = array.type
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_boolean(kind):
        array = array.cast(pa.int32())
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
        codes = np.unique(values, return_inverse=True)[1].astype(np.int64)
    else:
        encoded = pc.dictionary_encode(array, null_encoding="mask")
        values_ = encoded.dictionary.to_pylist()
        ranks = np.empty(len(values_), np.int64)
        ranks[sorted(range(len(values_)), key=values_.__getitem__)] = np.arange(len(values_))
        indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        codes = ranks[indices] if len(ranks) else np.zeros(len(array), np.int64)
    codes = np.where(valid, codes + 1, 0)
    return -codes if descending else codes


def sort_positions(codes: Sequence[Int64s], last: Int64s) -> Int64s:
    """Return row positions sorted by the integer codes of the ORDER BY columns.

    The codes are those of `order_codes`, and `last` breaks ties.
    """
    return np.lexsort((last, *reversed(codes)))


class _Reversed:
    """Wrapper that reverses the order of a value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def sort_key(values: Sequence[Any], descending: Sequence[bool]) -> tuple[Any, ...]:
    """Return a comparable sort key for the values of one row."""
    return tuple(
        _Reversed(_in_order(value)) if falls else _in_order(value)
        for value, falls in zip(values, descending, strict=True)
    )


def _in_order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if value != value else (1, value)


# Stable sort for compiled loops
#
# The result is that of `np.argsort`, which takes seven times as long to compile.


_RUN = 16  # number of rows up to which insertion sort is faster than merge sort


@kernel
def sort_by(order: Any, keys: Any, start: int, end: int) -> None:
    """Sort order[start:end] by keys[order[…]], stable and with NaN last."""
    for low in range(start, end, _RUN):
        for index in range(low + 1, min(low + _RUN, end)):
            row = order[index]
            key = keys[row]
            before = index - 1
            while before >= low and _after(keys[order[before]], key):
                order[before + 1] = order[before]
                before -= 1
            order[before + 1] = row
    width = _RUN
    if end - start <= width:
        return
    other = np.empty(end - start, order.dtype)
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            left, right = low, middle
            for index in range(low, high):
                if right == high or (left < middle and not _after(keys[order[left]], keys[order[right]])):
                    other[index - start] = order[left]
                    left += 1
                else:
                    other[index - start] = order[right]
                    right += 1
        for index in range(start, end):
            order[index] = other[index - start]
        width *= 2


@kernel(inline="always")
def _after(a: Any, b: Any) -> Any:
    """Return True if a sorts after b.

    NaN, which does not equal itself, sorts last.
    """
    return a > b or (a != a and b == b)

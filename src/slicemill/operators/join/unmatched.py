"""Unmatched rows of outer, semi and anti joins of two streams.

These joins can share slices with inner joins. A state slice has *pending* bits: for each row, the queries
for which the row is still unmatched. A pair that passes the conditions of a query clears the query's bit in
both rows. A row whose bit is still set at the end of its window has no partner and cannot get a partner any
more:

    A.ts          B …                B …          A.ts + window of A
    |-------------|-------------------|------------|
    stored        match: bit cleared               bit still set: emit (A, NULL) at this time

Rows with a NULL key never match. They are stored outside the slices until the end of their window. If rows
expire by a column, an unmatched row is emitted at the earlier of its expiry and the end of its window, but
after its own timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from slicemill.catalog.queries import JoinKind, Window
from slicemill.columns.merge import with_seqs
from slicemill.columns.order import rank_seqs
from slicemill.columns.sequence_bits import SEQ_BITS, rank_bits
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.metrics.due_times import trigger_arrivals
from slicemill.operators.join.block import (
    BLOCK_SEQ,
    BLOCK_TS,
    DATA,
    TIME,
    WORD_BITS,
    Block,
    QueryBits,
    column_numbers,
    ends_of,
    mask_words,
)
from slicemill.operators.join.emit import OrderedResults
from slicemill.operators.join.probe import Words, indices_in, indices_out, typed_kernel, words_in, words_out
from slicemill.operators.join.spec import JoinMember, SharedJoin
from slicemill.operators.join.state import JoinSide, replace_masks
from slicemill.types import TIMESTAMP, Schema

_NEVER = np.int32(2**31 - 1)


@typed_kernel(types.void(words_in, indices_in, indices_in, words_out))
def clear_matched(wanted: Words, indices: Int32s, rows: Int32s, pending: Words) -> None:
    """Mark rows as matched: clear the bits of the queries for which each row has found a match."""
    for pair in range(len(rows)):
        for word in range(pending.shape[1]):
            pending[rows[pair], word] &= ~wanted[indices[pair], word]


@typed_kernel(types.void(words_in, indices_in, indices_in, words_in, types.int64, types.uint64, indices_out))
def find_first(
    wanted: Words, indices: Int32s, rows: Int32s, pending: Words, word: int, bit: int, first: Int32s
) -> None:
    """Find the first matching pair of each row that had no match for a query before."""
    for pair in range(len(rows)):
        row, index = rows[pair], indices[pair]
        if wanted[index, word] & pending[row, word] & bit and index < first[row]:
            first[row] = index


@typed_kernel(types.void(words_out, indices_in, indices_in, types.int64, types.uint64, indices_in))
def keep_first(wanted: Words, indices: Int32s, rows: Int32s, word: int, bit: int, first: Int32s) -> None:
    """Clear the bit of a semi join in every matching pair of a row except the row's first pair."""
    for pair in range(len(rows)):
        if first[rows[pair]] != indices[pair]:
            wanted[indices[pair], word] &= ~bit


@dataclass(frozen=True, slots=True)
class _UnmatchedRows:
    """Unmatched rows of one join input that are emitted for one query."""

    side: int
    # timestamps of the emitted results
    times: Int64s
    seqs: Int64s
    # columns of the input rows, under the names that state slices use
    table: pa.Table


class UnmatchedTracker:
    """Tracks the unmatched rows of both inputs of an outer, semi or anti join."""

    def __init__(
        self,
        operator: SharedJoin,
        schemas: Sequence[Schema],
        query_bits: QueryBits,
        seq_bits: Mapping[str, int],
    ) -> None:
        """Track the unmatched rows of all outer, semi and anti joins of a shared join.

        `seq_bits` maps each query to the number of bits in the sequence numbers of its input rows.
        """
        self._members = [member for member in operator.members if member.kind is not JoinKind.INNER]
        self._schemas = schemas
        self._query_bits = query_bits
        self._seq_bits = seq_bits
        self.judged = [
            query_bits.mask([member.name for member in self._members if side in member.kind.judged])
            for side in range(len(schemas))
        ]

    def __bool__(self) -> bool:
        return bool(self._members)

    def tracks_side(self, side: int) -> bool:
        """Return True if a query tracks which rows of the given input have found a match."""
        return bool(self.judged[side].any())

    # -- recording matches -----------------------------------------------------------------------------

    def note(self, pairs: OrderedResults) -> None:
        """Record that the rows of new pairs have found a match.

        Pairs that semi and anti joins do not emit are dropped. The pairs have already passed all conditions.
        """
        for member in self._members:
            if member.kind is JoinKind.SEMI:
                self._keep_first(pairs, self._query_bits.bits[member.name])
        for part in (*pairs.added(0), *pairs.added(1)):
            if part.block.pending is not None:
                clear_matched(pairs.words, part.indices, part.rows, part.block.pending)
        anti = [member.name for member in self._members if member.kind is JoinKind.ANTI]
        if anti:
            pairs.words &= ~self._query_bits.mask(anti)
        if any(member.kind in (JoinKind.SEMI, JoinKind.ANTI) for member in self._members):
            pairs.drop_empty()

    def _keep_first(self, pairs: OrderedResults, query: int) -> None:
        word, bit = query // WORD_BITS, np.uint64(1 << query % WORD_BITS)
        firsts: dict[int, Int32s] = {}
        for part in pairs.added(0):
            block = part.block
            first = firsts.setdefault(id(block), np.full(block.rows, _NEVER, np.int32))
            if block.pending is not None:
                find_first(pairs.words, part.indices, part.rows, block.pending, word, bit, first)
        for part in pairs.added(0):
            keep_first(pairs.words, part.indices, part.rows, word, bit, firsts[id(part.block)])

    # -- emitting unmatched rows -----------------------------------------------------------------------

    def told(
        self, member: JoinMember, sides: Sequence[JoinSide], new: Sequence[Block], known: int
    ) -> pa.Table:
        """Return a query's unmatched rows that can no longer find a match, and mark them as emitted.

        The rows are in output order. `known` is the watermark of both inputs.
        """
        found = [
            part
            for side in member.kind.outer_inputs
            for part in self._over(member, side, sides[side], new[side], known)
        ]
        if not found:
            return None
        times, seqs, ranks = (
            np.concatenate(parts)
            for parts in zip(*((p.times, p.seqs, np.full(len(p.times), p.side)) for p in found), strict=True)
        )
        order = np.lexsort((seqs, ranks, times))
        bits = self._seq_bits.get(member.name, SEQ_BITS)
        numbers = rank_seqs(rank_seqs(seqs, ranks, bits), 0, rank_bits(bits))
        columns = {"_ts": pa.array(times), "_seq": pa.array(numbers)}
        columns["_arr"] = pa.array(trigger_arrivals(times))
        for name, side, column in member.columns:
            parts = [self._values(part, side, column) for part in found]
            columns[name] = pa.chunked_array(parts)
        return pa.table(columns).take(pa.array(order))

    def with_pairs(self, member: JoinMember, told: pa.Table | None, pairs: pa.Table) -> pa.Table:
        """Merge the unmatched rows and the joined pairs of a query into one table, in output order.

        Unmatched rows precede pairs of the same timestamp.
        """
        bits = rank_bits(self._seq_bits.get(member.name, SEQ_BITS))
        later = rank_seqs(column_numbers(pairs, "_seq"), 1, bits)
        pairs = with_seqs(pairs, later)
        if told is None or not pairs.num_rows:
            return pairs if told is None else told
        whole = pa.concat_tables([told, pairs])
        return whole.take(pa.array(np.argsort(column_numbers(whole, "_ts"), kind="stable")))

    def due(self, sides: Sequence[JoinSide]) -> int | None:
        """Return the watermark at which the next unmatched row is emitted."""
        return min(
            (
                first
                for member in self._members
                for side in member.kind.outer_inputs
                if (first := self._first(member, side, sides[side])) is not None
            ),
            default=None,
        )

    def _bit(self, member: JoinMember) -> tuple[int, np.uint64]:
        query = self._query_bits.bits[member.name]
        return query // WORD_BITS, np.uint64(1 << query % WORD_BITS)

    def _over(
        self, member: JoinMember, number: int, side: JoinSide, new: Block, known: int
    ) -> Iterator[_UnmatchedRows]:
        """Yield the unmatched rows of one input whose window has ended, and mark them as emitted."""
        word, bit = self._bit(member)
        window = member.windows[number]
        oldest = known if window.expires is not None else known - _extent(window)
        held = [stored.block(self._query_bits.words) for stored in side.pending_from(oldest)]
        for block in (*held, new):
            if block.pending is None:
                continue
            rows = np.flatnonzero((block.pending[:, word] & bit != 0) & (block.times <= oldest))
            ends = _ends(window, block.times[rows], block.table, rows)
            rows, ends = rows[ends <= known], ends[ends <= known]
            if len(rows):
                block.pending[rows, word] &= ~bit
                table = block.table.take(pa.array(rows))
                yield _UnmatchedRows(number, ends, column_numbers(table, BLOCK_SEQ), table)
        lone = side.state.lone
        if lone is not None:
            masks = np.array(mask_words(lone, self._query_bits.words))
            rows = np.flatnonzero(masks[:, word] & bit)
            ends = _ends(window, column_numbers(lone, BLOCK_TS)[rows], lone, rows)
            rows, ends = rows[ends <= known], ends[ends <= known]
            if len(rows):
                table = lone.take(pa.array(rows))
                masks[rows, word] &= ~bit
                side.state.lone = _select_wanted(replace_masks(lone, masks), masks)
                yield _UnmatchedRows(number, ends, column_numbers(table, BLOCK_SEQ), table)

    def _first(self, member: JoinMember, number: int, side: JoinSide) -> int | None:
        """Return the time at which the first unmatched row of one input is emitted, or None.

        The result is None if no row is unmatched.
        """
        word, bit = self._bit(member)
        window = member.windows[number]
        found = []
        for stored in side.state.slices:
            if stored.pending is not None:
                rows = np.flatnonzero(stored.pending[:, word] & bit)
                if len(rows):
                    block = stored.block(self._query_bits.words)
                    found.append(int(_ends(window, block.times[rows], block.table, rows).min()))
                    if window.expires is None:
                        break
        lone = side.state.lone
        if lone is not None:
            rows = np.flatnonzero(mask_words(lone, self._query_bits.words)[:, word] & bit)
            ends = _ends(window, column_numbers(lone, BLOCK_TS)[rows], lone, rows)
            found += [int(ends.min())] if len(rows) else []
        return min(found, default=None)

    def _values(self, part: _UnmatchedRows, side: int, column: str) -> pa.Array:
        """Return one column of the emitted unmatched rows. Columns of the other input are NULL."""
        schema = self._schemas[side]
        if column == "_number":
            return pa.array(part.seqs) if side == part.side else pa.nulls(len(part.times), pa.int64())
        kind = arrow_type(TIMESTAMP if column == "_ts" else schema.columns[schema.index(column)].type)
        if side != part.side:
            return pa.nulls(len(part.times), kind)
        if column == "_ts":
            own = TIME if TIME in part.table.column_names else BLOCK_TS
            return part.table.column(own).combine_chunks().view(kind)
        values = part.table.column(DATA + column)
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def _extent(window: Window) -> int:
    assert window.extent is not None, "the binder asks for a window that ends"
    return window.extent


def _ends(window: Window, times: Int64s, table: pa.Table, rows: NDArray[np.int64]) -> Int64s:
    """Return the time from which each row cannot find a match any more.

    The time is always later than the row's own timestamp.
    """
    if window.expires is None:
        return times + _extent(window)
    ends = ends_of(table.column(DATA + window.expires.column).take(pa.array(rows)), window.expires)
    if window.extent is not None:
        ends = np.minimum(ends, times + window.extent)
    return np.maximum(ends, times + 1)


def _select_wanted(table: pa.Table, masks: NDArray[np.uint64]) -> pa.Table | None:
    some = masks.any(axis=1)
    if some.all():
        return table
    return table.filter(pa.array(some)).combine_chunks() if some.any() else None

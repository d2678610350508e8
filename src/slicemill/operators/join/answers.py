"""Results of each query, built from the pairs of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from slicemill.catalog.queries import JoinKind, Window
from slicemill.columns.merge import with_seqs
from slicemill.columns.order import rank_seqs
from slicemill.columns.sequence_bits import rank_bits
from slicemill.functions.values import ExpressionError
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
from slicemill.operators.join.conditions import Residuals
from slicemill.operators.join.pairs import Pairs, fetch
from slicemill.operators.join.probe import Words, indices_in, indices_out, typed_kernel, words_in, words_out
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.state import JoinSide, replace_masks
from slicemill.types import BIGINT, TIMESTAMP, Schema, Type

_TS, _NUMBER = "_ts", "_number"  # column names of a row's timestamp and row number

# Returns the columns that order the pairs of one new row across subtasks.
Ties: TypeAlias = Callable[[Pairs], Mapping[str, pa.Array]]

# Result of a query in a run: rows, or an error.
Answer: TypeAlias = pa.Table | ExpressionError


# Results of a run so far, by query.
Collected: TypeAlias = dict[str, list[pa.Table]]
# Memory limit for the results of a query in one run.
MOST_BYTES = 2 << 30


class Answers:
    """Builds the results of all queries from pairs of rows."""

    def __init__(
        self,
        members: Sequence[JoinMember],
        schemas: Sequence[Schema],
        query_bits: QueryBits,
        ties: Ties,
        unmatched: UnmatchedTracker,
    ) -> None:
        self._ties = ties
        self._unmatched = unmatched
        self._members = members
        self._schemas = schemas
        self._query_bits = query_bits
        self._residuals = Residuals(members, schemas, query_bits)
        self._bytes: dict[str, int] = {}  # bytes of the results in this run, by query

    def add(self, pairs: Pairs, collected: Collected, errors: dict[str, ExpressionError]) -> None:
        """Append the results that are in some pairs.

        Failed conditions are added to `errors`.
        """
        self._residuals.test(pairs, errors)
        if self._unmatched:
            self._unmatched.note(pairs)
        pairs = pairs.dropped()
        for member in self._members:
            indices = pairs.of(self._query_bits.bits[member.name])
            if not len(indices) or member.name in errors:
                continue
            columns = {"_ts": pairs.moments(), "_seq": pairs.seqs(), "_arr": pairs.arrivals()}
            columns |= self._ties(pairs)
            columns |= {name: self._value(pairs, side, column) for name, side, column in member.columns}
            table = pa.table({name: fetch(column, indices) for name, column in columns.items()})
            parts = collected.setdefault(member.name, [])
            parts.append(table)
            self._bytes[member.name] = self._bytes.get(member.name, 0) + table.nbytes
            if self._bytes[member.name] > MOST_BYTES:
                rows = sum(part.num_rows for part in parts)
                del collected[member.name]
                errors[member.name] = too_many_rows(rows)

    def all_of(self, collected: Collected, errors: dict[str, ExpressionError]) -> list[Answer]:
        """Return the result of each query at the end of a run."""
        self._bytes.clear()
        return [
            errors.get(member.name) or _concat_results(collected.get(member.name) or [self._empty(member)])
            for member in self._members
        ]

    def _value(self, pairs: Pairs, side: int, column: str) -> pa.Array:
        if column == _TS:
            return pairs.times(side).view(arrow_type(TIMESTAMP))
        if column == _NUMBER:
            return pairs.numbers(side)
        return pairs.data(side, column, arrow_type(self._type_of(side, column)))

    def _type_of(self, side: int, column: str) -> Type:
        own = {_TS: TIMESTAMP, _NUMBER: BIGINT}
        schema = self._schemas[side]
        return own[column] if column in own else schema.columns[schema.index(column)].type

    def _empty(self, member: JoinMember) -> pa.Table:
        types = dict.fromkeys(("_ts", "_seq", "_arr"), pa.int64())
        for name, side, column in member.columns:
            types[name] = arrow_type(self._type_of(side, column))
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def too_many_rows(rows: int) -> ExpressionError:
    """Return the error for a result that exceeds the memory limit."""
    return ExpressionError(
        f"a join makes {rows:,} rows and more of one batch of input, which take more than "
        f"{MOST_BYTES >> 20:,} MB of memory; give it smaller windows or a more selective condition"
    )


def _concat_results(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


# Unmatched rows of outer, semi and anti joins.
#
# These joins can share slices with inner joins. A slice has *pending* bits: for each row, the queries for
# which the row is still unmatched. A pair that passes the conditions of a query clears the query's bit in
# both rows. A row whose bit is still set at the end of its window has no partner and cannot get a partner any
# more:
#
#     A.ts          B …                B …          A.ts + window of A
#     |-------------|-------------------|------------|
#     stored        match: bit cleared               bit still set: emit (A, NULL) at this time
#
# Rows with a NULL key never match. They are stored outside the slices until the end of their window. If rows
# expire by a column, an unmatched row is emitted at the earlier of its expiry and the end of its window, but
# after its own timestamp.


_NEVER = np.int32(2**31 - 1)


@typed_kernel(types.void(words_in, indices_in, indices_in, words_out))
def clear_matched(wanted: Words, indices: Int32s, rows: Int32s, pending: Words) -> None:
    """Clear the pending bits of matched rows."""
    for pair in range(len(rows)):
        for word in range(pending.shape[1]):
            pending[rows[pair], word] &= ~wanted[indices[pair], word]


@typed_kernel(types.void(words_in, indices_in, indices_in, words_in, types.int64, types.uint64, indices_out))
def find_first(
    wanted: Words, indices: Int32s, rows: Int32s, pending: Words, word: int, bit: int, first: Int32s
) -> None:
    """Find the first pair of each row that is pending."""
    for pair in range(len(rows)):
        row, index = rows[pair], indices[pair]
        if wanted[index, word] & pending[row, word] & bit and index < first[row]:
            first[row] = index


@typed_kernel(types.void(words_out, indices_in, indices_in, types.int64, types.uint64, indices_in))
def keep_first(wanted: Words, indices: Int32s, rows: Int32s, word: int, bit: int, first: Int32s) -> None:
    """Clear the query's bit except in the first pair of each row."""
    for pair in range(len(rows)):
        if first[rows[pair]] != indices[pair]:
            wanted[indices[pair], word] &= ~bit


@dataclass(frozen=True, slots=True)
class _UnmatchedRows:
    """Unmatched rows of an input that are emitted for a query."""

    side: int
    times: Int64s  # of the results
    seqs: Int64s
    table: pa.Table  # columns of the input, with the names used in slices


class UnmatchedTracker:
    """Tracks the unmatched rows of both sides of a join."""

    def __init__(
        self, members: Sequence[JoinMember], schemas: Sequence[Schema], query_bits: QueryBits, seq_bits: int
    ) -> None:
        self._members = [member for member in members if member.kind is not JoinKind.INNER]
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
        """Return True if a query tracks which rows of this side match."""
        return bool(self.judged[side].any())

    def result_bits(self, member: JoinMember) -> int:
        """Return the bits of a query's sequence numbers before `fan_out`."""
        bits = rank_bits(self._seq_bits)
        return bits if member.kind is JoinKind.INNER else rank_bits(bits)

    # -- recording matches -----------------------------------------------------------------------------

    def note(self, pairs: Pairs) -> None:
        """Record matches in the pending bits.

        Pairs that semi and anti joins do not emit are dropped. The pairs have already passed all conditions.
        """
        for member in self._members:
            if member.kind is JoinKind.SEMI:
                self._keep_first(pairs, self._query_bits.bits[member.name])
        for found in pairs.found:
            for block, rows in ((pairs.new[found.side].block, found.probes), (found.block, found.rows)):
                if block.pending is not None:
                    clear_matched(pairs.wanted, found.indices, rows, block.pending)
        anti = [member.name for member in self._members if member.kind is JoinKind.ANTI]
        if anti:
            pairs.wanted &= ~self._query_bits.mask(anti)

    def _keep_first(self, pairs: Pairs, query: int) -> None:
        word, bit = query // WORD_BITS, np.uint64(1 << query % WORD_BITS)
        left = [
            (pairs.new[0].block, found.probes, found.indices)
            if found.side == 0
            else (found.block, found.rows, found.indices)
            for found in pairs.found
        ]
        firsts: dict[int, Int32s] = {}
        for block, rows, indices in left:
            first = firsts.setdefault(id(block), np.full(block.rows, _NEVER, np.int32))
            if block.pending is not None:
                find_first(pairs.wanted, indices, rows, block.pending, word, bit, first)
        for block, rows, indices in left:
            keep_first(pairs.wanted, indices, rows, word, bit, firsts[id(block)])

    # -- emitting unmatched rows -----------------------------------------------------------------------

    def told(
        self, member: JoinMember, sides: Sequence[JoinSide], new: Sequence[Block], known: int
    ) -> pa.Table:
        """Return a query's rows that can no longer find a partner.

        The rows are in output order. `known` is the watermark of both sides. The pending bits of the returned
        rows are cleared.
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
        numbers = rank_seqs(rank_seqs(seqs, ranks, self._seq_bits), 0, rank_bits(self._seq_bits))
        columns = {"_ts": pa.array(times), "_seq": pa.array(numbers)}
        columns["_arr"] = pa.array(trigger_arrivals(times))
        for name, side, column in member.columns:
            parts = [self._values(part, side, column) for part in found]
            columns[name] = pa.chunked_array(parts)
        return pa.table(columns).take(pa.array(order))

    def with_pairs(self, told: pa.Table | None, pairs: pa.Table) -> pa.Table:
        """Merge unmatched rows and pairs.

        Unmatched rows precede pairs of the same timestamp.
        """
        later = rank_seqs(column_numbers(pairs, "_seq"), 1, rank_bits(self._seq_bits))
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
        """Yield pending rows whose window has ended, and clear their bits."""
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
        """Return when the first pending row is emitted.

        None if no row is pending.
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
        """Return a result column. Columns of the other input are NULL."""
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
    """Return the times from which rows cannot find a partner any more.

    This time is always later than the row's own timestamp.
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

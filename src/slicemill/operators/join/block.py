"""Blocks: rows of one join input, grouped by their join key.

A block has new rows, or the rows of a state slice. System columns begin with `#`, and columns of the stream
with `.`, so that their names never clash.

    #ts #arrival        timestamp and arrival time of waiting rows
    #seq                sequence number; stored in blocks only if a query needs it
    #time #first        timestamp of rows in a block, and the block's directory (see `probe`)
    #hash #key0 …       hash of the key; key columns unless equal hashes mean equal keys
    #mask0 …            queries that select the row (S19)
    #number             number of earlier rows of the stream, if a window counts rows
    #deadline           in a chain of joins: time at which one of the joined rows leaves its window
    #pending0 …         queries for which the row is unmatched. Slices store these columns outside the
                        table, because matches change them. The table has them only during a rewrite.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.queries import ExpiryColumn, FrameUnit, Window
from slicemill.codec.registry import stored_as
from slicemill.columns.keys import to_array
from slicemill.functions.vectors import numbers, validity
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.join import probe
from slicemill.operators.join.probe import Hashes, Words
from slicemill.operators.join.spec import JoinMember
from slicemill.time import BEGINNING, END

BLOCK_TS, BLOCK_SEQ, BLOCK_ARRIVAL, TIME, FIRST = "#ts", "#seq", "#arrival", "#time", "#first"
HASH, NUMBER = "#hash", "#number"
MASK, KEY, DATA, DEADLINE, PENDING = "#mask", "#key", ".", "#deadline", "#pending"

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of one join input, in order of (hash of the join key, time, arrival).

    `words` has one mask per row: the bits of the queries that select the row. `numbers` is empty unless a
    window counts rows. `pending` is None unless a query tracks which rows have found a match. It has one mask
    per row: the bits of the queries for which the row is still unmatched. It changes as rows match.
    """

    table: pa.Table
    times: Int64s
    hashes: Hashes
    first: Int32s
    words: Words
    numbers: Int64s
    pending: Words | None = None

    @property
    def rows(self) -> int:
        return len(self.times)

    @property
    def whole_table(self) -> pa.Table:
        """Return the block's table, with columns that mark the queries for which each row is unmatched."""
        table = self.table
        for word in range(0 if self.pending is None else self.pending.shape[1]):
            assert self.pending is not None
            column = pa.array(np.ascontiguousarray(self.pending[:, word]))
            table = table.append_column(f"{PENDING}{word}", column)
        return table


def column_numbers(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a numeric column as one array."""
    column = table.column(name)
    numbers: NDArray[Any] = (column.chunk(0) if column.num_chunks == 1 else column).to_numpy()
    return numbers


def mask_words(table: pa.Table, words: int) -> Words:
    """Return the query masks of a table's rows, as an array of 64-bit words indexed by [row, word].

    Missing words are 0, because a table that was written for fewer queries has fewer mask columns.
    """
    return _words(table, MASK, words)


def _words(table: pa.Table, column_name: str, words: int) -> Words:
    names = [f"{column_name}{word}" for word in range(words)]
    if words == 1:
        return column_numbers(table, names[0]).reshape(-1, 1)
    columns = [column_numbers(table, name) for name in names if name in table.column_names]
    masks = np.zeros((table.num_rows, words), np.uint64)
    for word, column in enumerate(columns[:words]):
        masks[:, word] = column
    return masks


def open_block(table: pa.Table, words: int) -> Block:
    """Return the block of rows that the table of a state slice holds."""
    numbers = column_numbers(table, NUMBER) if NUMBER in table.column_names else _NONE
    pending = None
    beside = [name for name in table.column_names if name.startswith(PENDING)]
    if beside:
        pending = np.array(_words(table, PENDING, words))
        table = table.drop_columns(beside)
    return Block(
        table,
        column_numbers(table, TIME),
        column_numbers(table, HASH).view(np.uint64),
        column_numbers(table, FIRST).view(np.int32),
        mask_words(table, words),
        numbers,
        pending,
    )


def group_by_hash(table: pa.Table, words: int) -> tuple[Block, Int32s]:
    """Group the rows of a table by the hash of their join key.

    Also return the original index of each row. The rows of the table are in time order. The table may be a
    concatenation of blocks, also in time order.
    """
    hashes = column_numbers(table, HASH).view(np.uint64)
    order = np.empty(len(hashes), np.int32)
    first = np.empty(len(hashes), np.int32)
    probe.group(hashes, order, first)
    kept = table.select([name for name in table.column_names if name != FIRST])
    # In a join without a key all hashes are equal, so the rows are sorted already.
    # The rows of a single block are sorted by hash too.
    sorted_ = kept if not (hashes[1:] < hashes[:-1]).any() else kept.take(pa.array(order))
    return open_block(sorted_.combine_chunks().append_column(FIRST, pa.array(first)), words), order


def conform_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Give a table the columns of a schema, and fill missing columns with NULLs or zeros.

    No query reads the filled values.
    """
    if set(schema.names) <= set(table.column_names) and (same := table.select(schema.names)).schema == schema:
        return same
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name))
        elif field.name.startswith(DATA):
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            columns.append(pa.array(np.zeros(table.num_rows, field.type.to_pandas_dtype())))
    return pa.table(columns, schema=schema)


# The windows of all queries on one join input give one mask of queries per range of row ages (S17, S49).
# The window lengths w_0 < w_1 < … divide the ages of rows into the ranges [0, w_0), [w_0, w_1), … The mask of
# an age range has the bit of each query whose window contains all ages of the range.
# Windows that count rows have a second table, with row numbers in place of ages.
# If a query names an expiry column, a row matches only rows with a timestamp before the row's expiry.
# When a row has expired for a query, the bit of this query is cleared in the mask of the row (S19).
# Queries that name no expiry column may still match the expired row.


WORD_BITS = 64
FOREVER = 2**63 - 1
_ALL_WHOLE: Mapping[str, float] = {}


@stored_as("join.seats", version=1)
@dataclass(frozen=True, slots=True)
class QueryBits:
    """Position of each query's bit in the masks of queries.

    A query keeps its bit for its whole lifetime. A query whose definition changes gets a new bit.
    """

    bits: Mapping[str, int]
    members: Mapping[str, JoinMember]

    @property
    def words(self) -> int:
        return 1 + max(self.bits.values(), default=0) // WORD_BITS

    def mask(self, names: Sequence[str]) -> NDArray[np.uint64]:
        words = np.zeros(self.words, np.uint64)
        for name in names:
            words[self.bits[name] // WORD_BITS] |= np.uint64(1 << self.bits[name] % WORD_BITS)
        return words

    def windows(self, input_: str) -> dict[str, Window]:
        """Map each query that joins an input to its window on this input."""
        return {n: member.window_of(input_) for n, member in self.members.items() if input_ in member.inputs}

    def assign_to(self, members: Sequence[JoinMember]) -> QueryBits:
        """Assign a mask bit to each query, after queries were added or removed.

        Unchanged queries keep their bits.
        """
        bits = {m.name: self.bits[m.name] for m in members if _same(self.members.get(m.name), m)}
        free = (bit for bit in range(len(members) + len(bits)) if bit not in set(bits.values()))
        for member in members:
            if member.name not in bits:
                bits[member.name] = next(free)
        return QueryBits(bits, {member.name: member for member in members})

    def without(self, names: Collection[str]) -> QueryBits:
        """Return a copy that lacks the named queries. All other queries keep their mask bits."""
        return QueryBits(
            {name: bit for name, bit in self.bits.items() if name not in names},
            {name: member for name, member in self.members.items() if name not in names},
        )

    def same_queries(self, before: QueryBits) -> list[str]:
        """Return the names of the queries whose definition is the same as in `before`."""
        return [name for name, member in self.members.items() if _same(before.members.get(name), member)]


def _same(before: JoinMember | None, now: JoinMember) -> bool:
    """Return True if a query is unchanged except for its output columns.

    The query may output fewer columns than before, or a column that was added to its stream. A query that
    outputs additional columns of stored rows is replaced by a new query (`plan.state_reuse.state_suffices`).
    """
    if before is None:
        return False
    # Joins of two streams that an earlier version of slicemill stored have an empty field `equal`.
    return replace(before, columns=now.columns, equal=before.equal or now.equal) == now


@dataclass(frozen=True, slots=True)
class WindowReach:
    """Lengths of all queries' windows on one join input.

    `longest_us` is the length of the longest window in time, and `most_rows` of the longest window in rows.
    Either value is -1 if no query has such a window.
    """

    ends_us: Int64s
    bits_us: Words
    longest_us: int
    ends_rows: Int64s
    bits_rows: Words
    most_rows: int
    # Each of the following fields has one element per query, the query with the longest window first.
    # The window of a query is either in `windows_us` or in `windows_rows`, and the other array has -1.
    # The mask bit of a query is `bits[i]` in the 64-bit word number `indices[i]`.
    names: tuple[str, ...]
    windows_us: Int64s
    windows_rows: Int64s
    indices: Int32s
    bits: NDArray[np.uint64]
    windows: Mapping[str, tuple[int, int]]

    @property
    def counts(self) -> bool:
        """Return True if a window counts rows."""
        return self.most_rows >= 0

    @property
    def longest_s(self) -> float | None:
        """Return the length of the longest window in seconds, or None.

        The result is None if a window is unbounded or counts rows.
        """
        return None if self.counts or self.longest_us == FOREVER else self.longest_us / 1_000_000


def reach_of(query_bits: QueryBits, input_: str, shares: Mapping[str, float] = _ALL_WHOLE) -> WindowReach:
    """Return the lengths of all queries' windows on a join input.

    `shares` shortens the windows of some queries to a share of their length.
    """
    windows = query_bits.windows(input_)
    extents = {name: _extent(window) for name, window in windows.items()}
    for name, share in shares.items():
        if name in extents and extents[name] != FOREVER:
            extents[name] = round(extents[name] * share)
    in_time = {name: extents[name] for name, window in windows.items() if not counts_rows(window)}
    in_rows = {name: extents[name] for name, window in windows.items() if counts_rows(window)}
    ends_us, bits_us = _table(in_time, query_bits)
    ends_rows, bits_rows = _table(in_rows, query_bits)
    names = sorted(windows, key=lambda name: (name in in_rows, in_time.get(name, 0)), reverse=True)
    bits = [query_bits.bits[name] for name in names]
    return WindowReach(
        ends_us,
        bits_us,
        max(in_time.values(), default=-1),
        ends_rows,
        bits_rows,
        max(in_rows.values(), default=-1),
        tuple(names),
        np.array([in_time.get(name, -1) for name in names], np.int64),
        np.array([in_rows.get(name, -1) for name in names], np.int64),
        np.array([bit // WORD_BITS for bit in bits], np.int32),
        np.array([1 << bit % WORD_BITS for bit in bits], np.uint64),
        {name: (in_time.get(name, -1), in_rows.get(name, -1)) for name in names},
    )


def counts_rows(window: Window) -> bool:
    return window.frame is FrameUnit.ROWS and window.extent is not None


def _extent(window: Window) -> int:
    return FOREVER if window.extent is None else window.extent


def _table(windows: Mapping[str, int], query_bits: QueryBits) -> tuple[Int64s, Words]:
    """Return the distinct window lengths, and the mask of queries whose windows contain each age range.

    The lengths are ascending. The
    last mask, for ages beyond all windows, is empty.
    """
    ends = sorted(set(windows.values()))
    bits = [
        query_bits.mask([name for name, end in windows.items() if end >= slice_end]) for slice_end in ends
    ]
    return np.array(ends, np.int64), np.stack([*bits, query_bits.mask([])])


# -- expiry columns ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SideExpiry:
    """Queries that name an expiry column of a join input, and the masks of these queries."""

    queries: Mapping[ExpiryColumn, tuple[str, ...]]
    masks: Mapping[ExpiryColumn, NDArray[np.uint64]]

    def __bool__(self) -> bool:
        return bool(self.queries)

    def by_query(self, block: Block) -> dict[str, Int64s]:
        """Map each query that names an expiry column to the expiry times of the block's rows."""
        return {name: ends for expiry, ends in self._ends(block) for name in self.queries[expiry]}

    def clear_expired(self, block: Block, words: Words, now: int) -> Words:
        """Clear the bits of the queries for which a row has expired at time `now`."""
        for expiry, ends in self._ends(block):
            over = ends <= now
            if over.any():
                words = np.array(words)
                words[over] &= ~self.masks[expiry]
        return words

    def _ends(self, block: Block) -> Iterator[tuple[ExpiryColumn, Int64s]]:
        """Yield each expiry column of the queries, together with the expiry times of the block's rows.

        A block that lacks an expiry column has no rows of the queries that name this column. A row that has
        already expired on arrival stays for one microsecond, so that it can be emitted without a partner.
        """
        for expiry in self.queries:
            if DATA + expiry.column in block.table.column_names:
                ends = ends_of(block.table.column(DATA + expiry.column), expiry)
                yield expiry, np.maximum(ends, block.times + 1)


def expiry_of(query_bits: QueryBits, input_: str) -> SideExpiry:
    queries: dict[ExpiryColumn, tuple[str, ...]] = {}
    for name, window in query_bits.windows(input_).items():
        if window.expires is not None:
            queries[window.expires] = (*queries.get(window.expires, ()), name)
    return SideExpiry(queries, {expiry: query_bits.mask(names) for expiry, names in queries.items()})


def ends_of(column: pa.Array | pa.ChunkedArray, expiry: ExpiryColumn) -> Int64s:
    """Return the expiry time of each row: the time in its expiry column plus `after_us`.

    The sum cannot overflow. A NULL gives the earliest time.
    """
    array = to_array(column)
    valid = validity(array)
    ends: Int64s = numbers(array).astype(np.int64, copy=False)
    if expiry.after_us > 0:
        ends = np.minimum(ends, END - expiry.after_us) + expiry.after_us
    elif expiry.after_us < 0:
        ends = np.maximum(ends, BEGINNING - expiry.after_us) + expiry.after_us
    return ends if valid is None else np.where(valid, ends, BEGINNING)

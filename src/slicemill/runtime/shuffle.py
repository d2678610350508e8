"""Exchange (shuffle): a subtask reads only the rows of its keys (S26).

    rows as stored             _order_4c…  _cell_4c…       part of subtask 1: rows 1, 4, in the order of time
    0  12:00:01  k = 7             0           0
    1  12:00:02  k = 3             2           0
    2  12:00:02  k = 7             1           1   ◄┐
    3  12:00:05  k = 5             4           1   ◄┘ borders, by binary search
    4  12:00:06  k = 3             3           2

When a large batch is written, the writer adds two columns for each exchange by which tasks read the log: the
row positions in the order of (subtask, `_ts`, `_seq`), and the subtask at each position of this order. The
rows are stored only once. Small batches lack these columns, and so do batches that were written before the
exchange existed. Their rows are partitioned on reading, once for all subtasks of a worker's message.

If several subtasks read the same rows, these subtasks share a *part*, and the columns contain parts instead
of subtasks. All subtasks that a worker runs in one message read one copy of the part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import SEQ, TS, conform, from_arrow, with_system_columns
from slicemill.columns.keys import Subtasks, stripes_of, subtasks_of, to_array
from slicemill.columns.merge import merge_sorted
from slicemill.functions.evaluate import compile_or_null
from slicemill.operators.join.hashing import HashedKeys, hash_keys
from slicemill.operators.join.heavy_keys import KeySample, broadcast_mask, key_sample
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.partitioning import Along, Exchange
from slicemill.types import Schema

# Minimum number of rows of a batch that is stored with its order by subtask, in total and per subtask.
# The two numbers are chosen from measurements of the time in which one worker reads 64 000 rows.
# The left figure is for batches whose order by subtask was stored when the batch was written.
# The right figure is for batches whose order is computed by the reader.
#   batches of 16 000 rows:   2 subtasks 6.9 / 6.3 ms,   8 subtasks 7.3 / 7.6 ms
#   batches of 64 000 rows:  64 subtasks 6.8 / 7.8 ms
#   batches of  4 000 rows:   8 subtasks 15 / 9 ms,     64 subtasks 52 / 12 ms
# The order is computed once if it is stored, and otherwise once in each worker that reads the batch.
_LARGE, _LARGE_PER_SUBTASK = 16_000, 1_000
# Number of rows that are sampled of each written batch, to find frequent keys.
# A key with 1/64 of the rows is sampled 32 ± 6 times.
_SAMPLED, _GOLDEN = 2_048, 0.6180339887498949
_NOWHERE = np.zeros(0, np.intp)


def is_large(rows: int, exchanges: Iterable[Exchange]) -> bool:
    """Return True if a batch of `rows` rows is so large that its order by subtask is stored."""
    parts = max((exchange.parts for exchange in exchanges), default=1)
    return parts > 1 and rows >= max(_LARGE, _LARGE_PER_SUBTASK * parts)


def add_subtask_order(table: pa.Table, exchanges: Iterable[Exchange], schema: Schema) -> pa.Table:
    """Add columns with the order of the rows by subtask, for each exchange (partitioning).

    The rows of a log are sorted by (`_ts`, `_seq`).
    """
    for exchange in exchanges:
        order_name, part_name = _columns(exchange)
        if exchange.parts == 1 or order_name in table.column_names:
            continue
        parts = _Partitioner.of(exchange, schema)(table)
        order = np.argsort(parts, kind="stable")
        table = table.append_column(order_name, pa.array(order.astype(np.int32)))
        table = table.append_column(part_name, pa.array(parts[order]))
    return table


def sample_keys(table: pa.Table, exchanges: Iterable[Exchange], schema: Schema) -> dict[str, KeySample]:
    """Map the id of each exchange (partitioning) by key to the frequent keys of a batch."""
    found = {}
    keyed = [exchange for exchange in exchanges if exchange.by_key and exchange.subtasks > 1]
    if keyed and table.num_rows:
        times = table.column(TS)
        span_us = times[-1].as_py() - times[0].as_py()
        sample = table.take(pa.array(_sample_positions(table.num_rows)))
        for exchange in keyed:
            spreader = _Partitioner.of(exchange, schema)
            hashed, subtasks = spreader.key_hashes(sample), spreader(sample)
            found[exchange.id] = key_sample(table.num_rows, span_us, hashed.hashes, hashed.valid, subtasks)
    return found


def _sample_positions(rows: int) -> NDArray[np.int64]:
    """Return the positions of the rows to sample: evenly spread, but not periodic.

    A periodic sample would be biased if keys are periodic.
    """
    if rows <= _SAMPLED:
        return np.arange(rows)
    turns = np.arange(_SAMPLED) * _GOLDEN % 1.0
    return (turns * rows).astype(np.int64)


@dataclass(frozen=True)
class _OrderedRows:
    """Batch that was stored with the order of its rows by part (rows for one subtask or more).

    The rows of a part are `order[borders[part]:borders[part + 1]]`.
    """

    table: pa.Table
    order: NDArray[np.integer]
    borders: NDArray[np.intp]
    everywhere: NDArray[np.intp]  # positions of rows that belong to all parts
    row_bytes: float = 0.0  # stored bytes of a row; one part can be read alone

    def part(self, part: int) -> pa.Table:
        begin, end = self.borders[part : part + 2]
        rows = self.order[begin:end]
        if len(self.everywhere):
            here = np.zeros(self.table.num_rows, np.bool_)
            here[rows] = here[self.everywhere] = True
            rows = np.flatnonzero(here)
        return self.table.take(pa.array(rows))


@dataclass(frozen=True)
class _UnorderedRows:
    """Batch in time order, with the part (for one subtask or more) to which each row belongs."""

    table: pa.Table
    parts: Subtasks
    everywhere: NDArray[np.intp]
    row_bytes: float = 0.0

    def part(self, part: int) -> pa.Table:
        here = self.parts == part
        here[self.everywhere] = True
        return self.table.take(pa.array(np.flatnonzero(here)))


class PartitionedRows:
    """Rows of a log, partitioned by subtask.

    `tables` are the stored batches, each with its arrival time. If rows are partitioned by key, rows of
    `heavy` keys go to all subtasks.
    """

    def __init__(
        self,
        exchange: Exchange,
        columns: pa.Schema,
        tables: Iterable[tuple[pa.Table, int]],
        heavy: Sequence[HeavyKey] = (),
    ) -> None:
        self._exchange = exchange
        self._heavy = heavy
        self._spreader = _Partitioner.of(exchange, from_arrow(columns))
        self._schema = with_system_columns(columns)
        self._pieces: list[_OrderedRows | _UnorderedRows] = []
        self._bytes = 0
        self._parts: dict[int, pa.Table] = {}
        unordered = []
        for stored, arrival_us in tables:
            table = conform(stored, self._schema, arrival_us)
            found = self._as_stored(stored, table)
            if found is None:
                unordered.append(table)
                self._bytes += stored.nbytes
            else:
                self._pieces.append(found)
        if exchange.parts == 1:
            self._parts[0] = merge_sorted(unordered) if unordered else self._schema.empty_table()
        elif unordered:
            table = merge_sorted(unordered).combine_chunks()
            self._pieces.append(_UnorderedRows(table, self._spreader(table), self._everywhere(table)))

    def part(self, subtask: int) -> pa.Table:
        """Return the rows of a subtask, sorted by (`_ts`, `_seq`)."""
        part = self._exchange.part_of(subtask)
        if part not in self._parts:
            pieces = [piece.part(part) for piece in self._pieces]
            for piece, own in zip(self._pieces, pieces, strict=True):
                self._bytes += round(own.num_rows * piece.row_bytes)
            self._parts[part] = merge_sorted(pieces) if pieces else self._schema.empty_table()
        return self._parts[part]

    def take_bytes(self) -> int:
        """Return the number of bytes of the log that were read since the last call."""
        read, self._bytes = self._bytes, 0
        return read

    def _as_stored(self, stored: pa.Table, table: pa.Table) -> _OrderedRows | None:
        """Return the rows of a batch with the order by subtask that was stored with the batch.

        Return None if no order was stored.
        """
        order, parts = _columns(self._exchange)
        if order not in stored.column_names:
            return None
        sorted_parts = to_array(stored.column(parts)).to_numpy()
        indices, borders = to_array(stored.column(order)).to_numpy(), self._borders(sorted_parts)
        row_bytes = stored.nbytes / stored.num_rows
        return _OrderedRows(table, indices, borders, self._everywhere(table), row_bytes)

    def _everywhere(self, table: pa.Table) -> NDArray[np.intp]:
        """Return the positions of rows with heavy keys, which go to all subtasks."""
        if not self._heavy:
            return _NOWHERE
        hashes = self._spreader.key_hashes(table).hashes
        return np.flatnonzero(broadcast_mask(self._heavy, hashes, to_array(table.column(TS)).to_numpy()))

    def _borders(self, parts: Subtasks) -> NDArray[np.intp]:
        # The type is uint16 like that of `parts`, because NumPy would copy `parts` for a wider type.
        count = self._exchange.parts
        return np.append(np.searchsorted(parts, np.arange(count, dtype=np.uint16)), len(parts))


class _Partitioner:
    """Function that computes the part of each row. It is compiled once per process."""

    def __init__(self, exchange: Exchange, schema: Schema) -> None:
        self._spread = [
            (count, None if isinstance(by, Along) else compile_or_null(by, schema))
            for count, by in exchange.spread
        ]

    def __call__(self, table: pa.Table) -> Subtasks:
        parts = np.zeros(table.num_rows, np.uint32)
        for count, keys in self._spread:
            if keys is None:
                found = stripes_of(to_array(table.column(SEQ)).to_numpy(), count)
            else:
                # A row whose key raises an error still goes to a subtask, which reports the error.
                found = subtasks_of(keys(table), table.num_rows, count)
            parts = parts * np.uint32(count) + found
        return parts.astype(np.uint16)

    def key_hashes(self, table: pa.Table) -> HashedKeys:
        """Return the hashes of the key of each row, equal to the hashes that a join computes."""
        ((_, keys),) = self._spread
        assert keys is not None, "rows go by keys"
        return hash_keys([pa.chunked_array([to_array(key)]) for key in keys(table)], table.num_rows)

    @staticmethod
    @lru_cache(maxsize=1024)
    def of(exchange: Exchange, schema: Schema) -> _Partitioner:
        return _Partitioner(exchange, schema)


@lru_cache(maxsize=1024)
def _columns(exchange: Exchange) -> tuple[str, str]:
    return f"_order_{exchange.id}", f"_cell_{exchange.id}"

"""Pairs of rows that a run has found, with query masks.

Columns are gathered on first access. Pairs are found slice by slice and key by key, so that a gather reads
adjacent rows. `indices` are the positions of the pairs in the result. Gathered columns have this order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.queries import ExpiryColumn
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.columns.merge import tie_name, ties_of
from slicemill.columns.order import fan_out, rank_seqs
from slicemill.columns.sequence_bits import MOST_BITS, SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.join import probe as placing
from slicemill.operators.join.block import (
    BLOCK_SEQ,
    DATA,
    DEADLINE,
    KEY,
    TIME,
    WORD_BITS,
    Block,
    column_numbers,
    ends_of,
)
from slicemill.operators.join.probe import Words
from slicemill.operators.join.spec import InOrder
from slicemill.operators.step import StepContext
from slicemill.types import TIMESTAMP, Schema

_TIMESTAMP = arrow_type(TIMESTAMP)
_RAW: dict[int, type[np.generic]] = {32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class Probing:
    """New rows of a side, grouped by key.

    `block` has all new rows, and `stored` the rows that this subtask stores. By row of `block`: `numbers` are
    sequence numbers, `seqs` and `arrivals` the sequence numbers and arrival times of results, `ranks` the
    positions among the new rows of both sides, and `seen` the numbers of earlier rows of the other side.
    """

    block: Block
    stored: Block
    numbers: Int64s
    seqs: Int64s
    arrivals: Int64s
    ranks: Int32s
    seen: Int64s


@dataclass(frozen=True, slots=True)
class FoundPairs:
    """Pairs of new rows of `side` with rows of one block."""

    side: int
    block: Block
    probes: Int32s
    rows: Int32s
    indices: Int32s


@dataclass(slots=True)
class Pairs:
    new: Sequence[Probing]
    found: list[FoundPairs]
    wanted: Words
    _fetched: dict[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.wanted)

    def moments(self) -> pa.Array:
        """Return the timestamps of results: the newer rows' timestamps."""
        return self._of_probes("now", lambda probing: probing.block.times)

    def seqs(self) -> pa.Array:
        return self._of_probes("seq", lambda probing: probing.seqs)

    def arrivals(self) -> pa.Array:
        return self._of_probes("arrival", lambda probing: probing.arrivals)

    def causes(self) -> pa.Array:
        """Return the sequence numbers of the newer rows."""
        return self._of_probes("cause", lambda probing: probing.numbers)

    def older(self, name: str) -> pa.Array:
        """Return an integer system column of the older rows.

        0 if the column is missing.
        """
        known = f"older{name}"
        if known not in self._fetched:
            out = np.zeros(len(self), np.int64)
            for found in self.found:
                if name in found.block.table.column_names:
                    values = raw(found.block.table.column(name).chunk(0))
                    placing.scatter(values, found.rows, found.indices, out.view(np.uint64))
            self._fetched[known] = pa.array(out)
        return self._fetched[known]

    def times(self, side: int) -> pa.Array:
        return self._column(side, TIME, pa.int64())

    def numbers(self, side: int) -> pa.Array:
        return self._column(side, BLOCK_SEQ, pa.int64())

    def data(self, side: int, column: str, kind: pa.DataType) -> pa.Array:
        return self._column(side, DATA + column, kind)

    def compare_keys(self, kinds: Sequence[pa.DataType]) -> None:
        """Clear the masks of pairs with equal hashes but different keys."""
        for index, kind in enumerate(kinds):
            left, right = (self._column(side, f"{KEY}{index}", kind) for side in (0, 1))
            same = pc.equal(left, right).to_numpy(zero_copy_only=False).astype(np.bool_)
            if not same.all():
                self.wanted[~same] = 0

    def keep_deadlines(self) -> None:
        """Clear the masks of pairs with an expired row on the left.

        In a chain of joins, a left row is itself the result of a join.
        """
        over = self.moments().to_numpy() >= self._column(0, DEADLINE, pa.int64()).to_numpy()
        if over.any():
            self.wanted[over] = 0

    def keep_unexpired(self, side: int, expiry: ExpiryColumn, mask: NDArray[np.uint64]) -> None:
        """Clear the queries of `mask` in pairs with an expired row.

        A row has expired if the timestamp of its partner is not before the row's expiry.
        """
        ends = ends_of(self.data(side, expiry.column, _TIMESTAMP), expiry)
        over = self.times(1 - side).to_numpy() >= ends
        if over.any():
            self.wanted[over] &= ~mask

    def dropped(self) -> Pairs:
        """Return the pairs that are results of at least one query."""
        keep: NDArray[np.bool_] = np.any(self.wanted, axis=1)
        if keep.all():
            return self
        renumbered = (np.cumsum(keep) - 1).astype(np.int32)
        found: list[FoundPairs] = []
        for part in self.found:
            mine = keep[part.indices]
            indices = renumbered[part.indices[mine]]
            found.append(replace(part, probes=part.probes[mine], rows=part.rows[mine], indices=indices))
        return Pairs(self.new, found, np.ascontiguousarray(self.wanted[keep]))

    def of(self, bit: int) -> Int32s:
        """Return the positions of one query's pairs."""
        found: Int32s = placing.pairs_with_bit(self.wanted, bit // WORD_BITS, np.uint64(1 << bit % WORD_BITS))
        return found

    # -- fetching --------------------------------------------------------------------------------------

    def _of_probes(self, name: str, of: Callable[[Probing], Int64s]) -> pa.Array:
        if name not in self._fetched:
            out = np.empty(len(self), np.int64)
            for found in self.found:
                values = of(self.new[found.side]).view(np.uint64)
                placing.scatter(values, found.probes, found.indices, out.view(np.uint64))
            self._fetched[name] = pa.array(out)
        return self._fetched[name]

    def _column(self, side: int, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of one side.

        Missing values are NULL. No query reads missing values.
        """
        known = f"{side}{name}"
        if known not in self._fetched:
            sources = [self._source(found, side, name) for found in self.found]
            plain = all(values is not None and values.null_count == 0 for values, _ in sources)
            fetch = self._scatter_values if plain and width(kind) else self._taken
            self._fetched[known] = fetch(sources, kind)
        return self._fetched[known]

    def _source(self, found: FoundPairs, side: int, name: str) -> tuple[pa.Array | None, Int32s]:
        block, indices = found.block, found.rows
        if found.side == side:
            block, indices = self.new[side].block, found.probes
        # A block has one chunk per column.
        held = name in block.table.column_names
        return block.table.column(name).chunk(0) if held else None, indices

    def _scatter_values(
        self, sources: Sequence[tuple[pa.Array | None, Int32s]], kind: pa.DataType
    ) -> pa.Array:
        out = np.empty(len(self), _RAW[width(kind)])
        for found, (values, rows) in zip(self.found, sources, strict=True):
            placing.scatter(raw(values), rows, found.indices, out)
        return pa.Array.from_buffers(kind, len(out), [None, pa.py_buffer(out)])

    def _taken(self, sources: Sequence[tuple[pa.Array | None, Int32s]], kind: pa.DataType) -> pa.Array:
        parts = [
            pa.nulls(len(rows), kind) if values is None else values.take(pa.array(rows))
            for values, rows in sources
        ]
        order = np.empty(len(self), np.int32)
        order[np.concatenate([found.indices for found in self.found])] = np.arange(len(self))
        return pa.concat_arrays(parts).take(pa.array(order))


def fetch(column: pa.Array, indices: Int32s) -> pa.Array:
    """Return the values at ascending positions."""
    if len(indices) == len(column):
        return column
    if column.null_count or not width(column.type):
        return column.take(pa.array(indices))
    out = np.empty(len(indices), _RAW[width(column.type)])
    placing.gather(raw(column), indices, out)
    return pa.Array.from_buffers(column.type, len(out), [None, pa.py_buffer(out)])


def width(kind: pa.DataType) -> int:
    """Return the width of a 32-bit or 64-bit number type in bits.

    0 for other types.
    """
    plain = pa.types.is_primitive(kind) and kind.bit_width in _RAW
    return int(kind.bit_width) if plain else 0


def raw(column: pa.Array) -> NDArray[Any]:
    """Return a number column as an array of unsigned integers."""
    kind = _RAW[width(column.type)]
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


# Order of the results of chained joins.


def in_order(
    table: pa.Table, members: Sequence[tuple[str, str]], seq_bits: int = SEQ_BITS, *, tied: bool = False
) -> pa.Table:
    """Sort joined rows by (timestamp, latest stream, its number, all numbers).

    `members` has, by stream, the columns with the timestamp and the sequence number of the joined row. If
    several joined rows have the latest timestamp, the row of the last stream in FROM counts as the latest.
    Sequence numbers have `seq_bits` bits. With `tied`, other subtasks emit results for the same row, and the
    returned table has columns that order results across subtasks.
    """
    if not table.num_rows:
        return table
    table = table.combine_chunks()
    now = column_numbers(table, "_ts")
    numbers = [column_numbers(table, number) for _, number in members]
    latest = np.zeros(len(now), np.int64)
    number = np.zeros(len(now), np.int64)
    for index, (time, _) in enumerate(members):
        is_latest = np.asarray(table.column(time).cast(pa.int64()).to_numpy()) == now
        latest[is_latest] = index
        number[is_latest] = numbers[index][is_latest]
    order = np.lexsort((*reversed(numbers), number, latest, now))
    index, ranks = table.schema.get_field_index("_seq"), (len(members) - 1).bit_length()
    seqs = rank_seqs(number, latest, seq_bits, ranks)
    ordered = table.set_column(index, "_seq", pa.array(seqs)).take(pa.array(order))
    bits = rank_bits(seq_bits, ranks)
    if not tied:
        return fan_out(ordered, bits)
    # With too many bits, `rank_seqs` drops low bits of the number. The full number is then the first tie
    # column.
    lost = seq_bits + ranks > MOST_BITS
    for index, tie in enumerate((number, *numbers) if lost else numbers):
        ordered = ordered.append_column(tie_name(index, fan_out_bits(bits) - bits), pa.array(tie[order]))
    return ordered


class InOrderStep:
    """Orders results like a single join, and drops helper columns."""

    def __init__(self, operator: InOrder, output: Schema, seq_bits: int, *, tied: bool) -> None:
        self._members = operator.members
        self._columns = [TS, SEQ, ARRIVAL, *output.names]
        self._seq_bits = seq_bits
        self._tied = tied

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        ordered = in_order(tables[0], self._members, self._seq_bits, tied=self._tied)
        return ordered.select([*self._columns, *ties_of(ordered)]), complete[0]


def in_order_step(operator: InOrder, context: StepContext) -> InOrderStep:
    return InOrderStep(operator, context.node.schema, context.seq_bits, tied=context.subtask.tied)

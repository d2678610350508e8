"""Partial results of a join, the conditions that filter them, and the indexes for their lookups.

A partial result is a new row, joined with rows of some of the other inputs.

Each level of partial results adds a row of one more input. For each partial result, a level stores the index
of its parent in the previous level, and the row that it adds. A partial result therefore takes only a few
numbers. Columns are gathered on first access.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, conjuncts, transform
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.join import probe
from slicemill.operators.join.block import DATA, TIME, Block, QueryBits, column_numbers
from slicemill.operators.join.prepare import hash_column
from slicemill.operators.join.probe import Hashes, Words
from slicemill.operators.join.spec import SharedJoin
from slicemill.types import TIMESTAMP, Column, Schema

# timestamp of an input row, which join conditions read like a column
_TIME = Column("_ts", TIMESTAMP)

Evaluate: TypeAlias = Callable[[pa.Table], pa.ChunkedArray]

_RAW: dict[int, type[np.generic]] = {32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class NewRows:
    """Rows of one join input that this micro-batch joins.

    `block` has the rows that probe now, and `stored` the rows that this subtask stores. `times` are in
    arrival order. `order` has the arrival position of each row of the block. `numbers`, `arrivals` and `seen`
    are by row of the block: sequence numbers, arrival times, and the numbers of earlier rows of the other
    input. `seen` is empty unless a window counts rows.
    """

    block: Block
    stored: Block
    times: Int64s
    order: Int32s
    numbers: Int64s
    arrivals: Int64s
    seen: Int64s


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows of one block that partial results contain, with the position of each row in an output array."""

    block: Block
    rows: Int32s
    indices: Int32s


@dataclass(slots=True)
class PartialResults:
    """Partial results of one level, each of which adds one row to a partial result of the level before.

    `parents` has the index of each partial result's parent in level `before`. `rows` has the added row, and
    `words` the mask of queries. Results are ordered by the block of the added row. `begins` has the position
    of the first result of each block. `known_times` are the timestamps of the new rows, or None until they
    are needed.
    """

    input: int
    before: PartialResults | None
    parents: Int32s
    blocks: list[Block]
    begins: NDArray[np.int64]
    rows: Int32s
    words: Words
    known_times: Int64s | None = None
    _fetched: dict[tuple[int, str], pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def times(self) -> Int64s:
        """Return the timestamp of the new row from which each partial result was built."""
        if self.known_times is None:
            assert self.before is not None, "the first level has its times"
            self.known_times = np.empty(len(self), np.int64)
            times = self.before.times.view(np.uint64)
            probe.gather(times, self.parents, self.known_times.view(np.uint64))
        return self.known_times

    def kept(self, keep: NDArray[np.bool_]) -> PartialResults:
        """Return the partial results for which `keep` is True."""
        begins = np.concatenate([[0], np.cumsum(keep)])[self.begins]
        words = np.ascontiguousarray(self.words[keep])
        times = None if self.known_times is None else self.known_times[keep]
        return PartialResults(
            self.input, self.before, self.parents[keep], self.blocks, begins, self.rows[keep], words, times
        )

    def dropped(self) -> PartialResults:
        keep: NDArray[np.bool_] = np.any(self.words, axis=1)
        return self if keep.all() else self.kept(keep)

    def of(self, bit: NDArray[np.uint64]) -> PartialResults:
        """Return the partial results that still count for a query whose bit is set in a mask."""
        keep: NDArray[np.bool_] = np.any(self.words & bit, axis=1)
        return self if keep.all() else self.kept(keep)

    # -- fetching --------------------------------------------------------------------------------------

    @property
    def is_whole_block(self) -> bool:
        """Return True if the partial results are all new rows of one block, in the order of the block."""
        return self.before is None and len(self) == self.blocks[0].rows

    @property
    def source(self) -> int:
        """Return the number of the join input whose new rows started the partial results."""
        return self.input if self.before is None else self.before.source

    def source_rows(self) -> Int32s:
        """Return the index of the new row that started each partial result."""
        rows = self.rows
        if self.before is not None:
            above, at = self.before, self.parents
            rows = at if above.is_whole_block else _gather_rows(above.source_rows(), at)
        return rows

    def numbers(self, input_: int, name: str) -> NDArray[np.int64]:
        """Return a 64-bit integer column of one input's rows, with one value per partial result."""
        found: NDArray[np.int64] = raw(self.column(input_, name, pa.int64())).view(np.int64)
        return found

    def column(self, input_: int, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of one input's rows, with one value per partial result.

        Values that were not stored are NULL. No query reads these values.
        """
        known = (input_, name)
        if known not in self._fetched:
            added = self.located(input_, np.arange(len(self), dtype=np.int32))
            self._fetched[known] = fetch(added, len(self), name, kind)
        return self._fetched[known]

    def located(self, input_: int, positions: Int32s) -> list[AddedRows]:
        """Return the rows of one input that the partial results contain, grouped by block.

        `positions` has the position of each partial result in the output array.
        """
        level, at = self, None
        while level.input != input_:
            at = level.parents if at is None else _gather_rows(level.parents, at)
            assert level.before is not None, "an input that is bound"
            level = level.before
        if level.before is None:
            return [AddedRows(level.blocks[0], self.source_rows(), positions)]
        rows = level.rows if at is None else _gather_rows(level.rows, at)
        if len(level.blocks) == 1:
            return [AddedRows(level.blocks[0], rows, positions)]
        if at is None:
            ends = [*level.begins[1:].tolist(), len(rows)]
        else:
            of = (np.searchsorted(level.begins, at, side="right") - 1).astype(np.uint16)
            order = np.argsort(of, kind="stable").astype(np.int32)
            rows, positions = _gather_rows(rows, order), positions[order]
            ends = np.cumsum(np.bincount(of, minlength=len(level.blocks))).tolist()
        return [
            AddedRows(block, rows[begin:end], positions[begin:end])
            for block, begin, end in zip(level.blocks, [0, *ends[:-1]], ends, strict=True)
            if begin < end
        ]


def width(kind: pa.DataType) -> int:
    """Return the width of a 32-bit or 64-bit number type in bits, and 0 for any other type.

    Columns of these types are copied by compiled loops.
    """
    plain = pa.types.is_primitive(kind) and kind.bit_width in _RAW
    return int(kind.bit_width) if plain else 0


def raw(column: pa.Array) -> NDArray[Any]:
    """Return a number column as an array of unsigned integers."""
    kind = _RAW[width(column.type)]
    return np.frombuffer(column.buffers()[1], kind)[column.offset : column.offset + len(column)]


def take(column: pa.Array, indices: Int32s) -> pa.Array:
    """Return the values of a column at the given ascending positions."""
    if len(indices) == len(column):
        return column
    if column.null_count or not width(column.type):
        return column.take(pa.array(indices))
    out = np.empty(len(indices), _RAW[width(column.type)])
    probe.gather(raw(column), indices, out)
    return pa.Array.from_buffers(column.type, len(out), [None, pa.py_buffer(out)])


def fetch(added: Sequence[AddedRows], rows: int, name: str, kind: pa.DataType) -> pa.Array:
    """Gather the values of one column from several blocks into one array."""
    sources = [_values(part.block, name) for part in added]
    if width(kind) and all(values is not None and not values.null_count for values in sources):
        out = np.empty(rows, _RAW[width(kind)])
        for part, values in zip(added, sources, strict=True):
            probe.scatter(raw(values), part.rows, part.indices, out)
        return pa.Array.from_buffers(kind, len(out), [None, pa.py_buffer(out)])
    parts = [
        pa.nulls(len(part.rows), kind) if values is None else values.take(pa.array(part.rows))
        for part, values in zip(added, sources, strict=True)
    ]
    if not parts:
        return pa.nulls(rows, kind)
    order = np.empty(rows, np.int32)
    order[np.concatenate([part.indices for part in added])] = np.arange(rows)
    return pa.concat_arrays(parts).take(pa.array(order))


def _values(block: Block, name: str) -> pa.Array | None:
    """Return a column of a block, or None if the block lacks the column."""
    # Each column of a block has exactly one chunk.
    return block.table.column(name).chunk(0) if name in block.table.column_names else None


def _gather_rows(values: Int32s, at: Int32s) -> Int32s:
    out = np.empty(len(at), np.uint32)
    probe.gather(values.view(np.uint32), at, out)
    return out.view(np.int32)


def new_rows(input_: int, block: Block) -> PartialResults:
    """Return the first level of partial results: the new rows of one input."""
    rows = np.arange(block.rows, dtype=np.int32)
    return PartialResults(input_, None, rows, [block], np.zeros(1, np.int64), rows, block.words, block.times)


# A residual condition is a part of the join condition that is not an equality of keys.
# A residual condition is tested as soon as all streams that it reads are joined (S48).
# A residual condition may raise an error on a partial result that another condition would drop later.
# An error on a partial result is therefore ignored, and the condition is tested again on complete results.
# An error on a complete result fails the query.
# Results and errors therefore do not depend on the order in which the streams are probed.


@dataclass(frozen=True, slots=True)
class ResidualCondition:
    """Condition on rows of several inputs, and the names of the queries that have this condition.

    The condition names columns by input number, as in `0.column`.
    """

    evaluate: Evaluate
    columns: frozenset[str]
    inputs: frozenset[int]
    names: tuple[str, ...]


class Residuals:
    """Tests the residual conditions of all queries. Equal conditions are tested once (S19)."""

    def __init__(self, operator: SharedJoin, schemas: Sequence[Schema], query_bits: QueryBits) -> None:
        own = [(*schema.columns, _TIME) for schema in schemas]
        both = Schema(tuple(column.of(number) for number, columns in enumerate(own) for column in columns))
        self._types = {column.name: arrow_type(column.type) for column in both}
        self._query_bits = query_bits
        users: dict[Expr, list[str]] = {}
        for member in operator.members:
            # In a join of two streams, the parts of a residual condition are all tested by the same probe.
            for part in (member.residual,) if operator.two_way else conjuncts(member.residual):
                if part is not None:
                    users.setdefault(_of_inputs(part, operator.ports(member)), []).append(member.name)
        self._conditions = [
            ResidualCondition(
                compile_vector(expr, both),
                columns_of(expr),
                frozenset(int(name.split(".", 1)[0]) for name in columns_of(expr)),
                tuple(names),
            )
            for expr, names in users.items()
        ]

    def at(self, before: Collection[int], target: int, names: Collection[str]) -> list[ResidualCondition]:
        """Return the residual conditions that can be tested once input `target` is joined.

        `before` has the inputs that are joined already. Only conditions of the queries in `names` are
        returned.
        """
        tested = frozenset(before) if len(before) > 1 else frozenset[int]()
        there = {*before, target}
        return [
            replace(condition, names=wanted)
            for condition in self._conditions
            if condition.inputs <= there and not (len(before) > 1 and condition.inputs <= tested)
            if (wanted := tuple(name for name in condition.names if name in names))
        ]

    def test(
        self, partials: PartialResults, conditions: Sequence[ResidualCondition]
    ) -> list[ResidualCondition]:
        """Test residual conditions, and return the conditions that raised errors.

        Where a condition is false, the bits of its queries are cleared in the mask of the partial result.
        """
        unknown = []
        for condition in conditions:
            try:
                self._test(partials, condition)
            except ExpressionError:
                unknown.append(condition)
        return unknown

    def finish(
        self,
        partials: PartialResults,
        name: str,
        postponed: Sequence[ResidualCondition],
        errors: dict[str, ExpressionError],
    ) -> None:
        """Test conditions that raised errors before again, on the complete results of one query.

        An error on a complete result fails the query.
        """
        for condition in postponed:
            if name in condition.names:
                try:
                    self._test(partials, replace(condition, names=(name,)))
                except ExpressionError as problem:
                    errors.setdefault(name, problem)

    def _test(self, partials: PartialResults, condition: ResidualCondition) -> None:
        bits = self._query_bits.mask(condition.names)
        indices = np.flatnonzero((partials.words & bits).any(axis=1))
        if not len(indices):
            return
        # A condition that reads no columns still needs a column, which gives the number of rows.
        columns = {"": pa.array(partials.times)}
        for name in condition.columns:
            input_, column = name.split(".", 1)
            own = TIME if column == _TIME.name else DATA + column
            columns[name] = partials.column(int(input_), own, self._types[name])
        if len(indices) < len(partials):
            columns = {name: column.take(pa.array(indices)) for name, column in columns.items()}
        truth = pc.fill_null(condition.evaluate(pa.table(columns)), False)
        held = truth.combine_chunks().to_numpy(zero_copy_only=False)
        partials.words[indices[~held]] &= ~bits


def _of_inputs(expr: Expr, indices: Sequence[int]) -> Expr:
    """Rename the columns of a condition from `side.column` to `input.column`.

    `indices` has the number of the join input of each side.
    """

    def moved(part: Expr) -> Expr | None:
        if not isinstance(part, ColumnRef):
            return None
        side, column = part.name.split(".", 1)
        return ColumnRef(f"{indices[int(side)]}.{column}", part.type)

    return transform(expr, moved)


# A block is sorted by the first join key of its input.
# An index by another join key, or by time, has the positions of the block's rows in the order of this key.
# An index is built on first use and dropped with the block.


# number that stands for the time index, in place of the number of a join key
BY_TIME = -1


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Index of a block: its rows in order of (hash of one join key, time).

    `order` has the position of each row in the block. It is None if the block has the same order.
    """

    hashes: Hashes
    first: Int32s
    times: Int64s
    words: Words
    order: Int32s | None

    @property
    def bytes(self) -> int:
        """Return the bytes of memory that the index takes in addition to the block."""
        if self.order is None:
            return 0
        return sum(a.nbytes for a in (self.hashes, self.first, self.times, self.words, self.order))


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Block of stored rows to probe, the mask of queries that use the block, and its time range."""

    block: Block
    live: NDArray[np.uint64]
    earliest: int
    latest: int


class Indexes:
    """Indexes of the blocks of all inputs, built on first use."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[ref[pa.Table], KeyIndex]] = {}

    def of(self, block: Block, key: int) -> KeyIndex:
        if key == 0:
            return KeyIndex(block.hashes, block.first, block.times, block.words, None)
        index = (id(block.table), key)
        found = self._known.get(index)
        if found is None or found[0]() is not block.table:
            self._known[index] = found = (ref(block.table), _build_index(block, key))
        return found[1]

    def forget(self) -> None:
        """Drop the indexes of blocks that no longer exist."""
        self._known = {index: found for index, found in self._known.items() if found[0]() is not None}

    @property
    def bytes(self) -> int:
        return sum(index.bytes for _, index in self._known.values())


def _build_index(block: Block, key: int) -> KeyIndex:
    rows = block.rows
    by_time = np.argsort(block.times, kind="stable").astype(np.int32)
    if key == BY_TIME:
        order, first = by_time, np.zeros(rows, np.int32)
        # The time index gives all rows the hash 0, so the first hash range contains all rows.
        first[1:] = rows
        hashes = np.zeros(rows, np.uint64)
    else:
        own = column_numbers(block.table, hash_column(key)).view(np.uint64)[by_time]
        index, first = np.empty(rows, np.int32), np.empty(rows, np.int32)
        probe.group(np.ascontiguousarray(own), index, first)
        order, hashes = by_time[index], own[index]
    times, words = block.times[order], np.ascontiguousarray(block.words[order])
    return KeyIndex(np.ascontiguousarray(hashes), first, times, words, np.ascontiguousarray(order))

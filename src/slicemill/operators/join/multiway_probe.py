"""Partial results of new rows.

Each level of partial results adds a row of one more input. For each partial result, a level stores the index
of its parent in the previous level, and the row that it adds. A partial result therefore takes only a few
numbers. Columns are gathered on first access.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import types
from numpy.typing import NDArray

from slicemill.catalog.expressions import ColumnRef, Expr, columns_of, conjuncts, transform
from slicemill.columns.merge import tie_name
from slicemill.columns.order import fan_out, rank_seqs
from slicemill.columns.sequence_bits import MOST_BITS, fan_out_bits, rank_bits
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.join import probe
from slicemill.operators.join import probe as placing
from slicemill.operators.join.block import BLOCK_SEQ, DATA, TIME, Block, QueryBits, column_numbers
from slicemill.operators.join.conditions import Evaluate
from slicemill.operators.join.multiway_spec import MultiJoinMember
from slicemill.operators.join.multiway_state import hash_column
from slicemill.operators.join.pairs import raw, width
from slicemill.operators.join.probe import Hashes, Words, indices_in, indices_out, typed_kernel
from slicemill.operators.join.spec import stream_ranks
from slicemill.types import TIMESTAMP, Schema, Type

_RAW: dict[int, type[np.generic]] = {32: np.uint32, 64: np.uint64}


@dataclass(frozen=True, slots=True)
class AddedRows:
    """Rows of a block, and the positions of their partial results."""

    block: Block
    rows: Int32s
    indices: Int32s


@dataclass(slots=True)
class PartialResults:
    """Partial results: parent, added row, time and query mask of each.

    Results are ordered by the block of the added row. `begins` has the position of the first result of each
    block.
    """

    input: int
    before: PartialResults | None
    parents: Int32s
    blocks: list[Block]
    begins: NDArray[np.int64]
    rows: Int32s
    times: Int64s
    words: Words
    _added: dict[int, list[AddedRows]] = field(default_factory=dict)
    _fetched: dict[tuple[int, str], pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def kept(self, keep: NDArray[np.bool_]) -> PartialResults:
        """Return the partial results for which `keep` is True."""
        counted = np.concatenate([[0], np.cumsum(keep)])
        begins = counted[self.begins]
        parents, rows, times = self.parents[keep], self.rows[keep], self.times[keep]
        words = np.ascontiguousarray(self.words[keep])
        return PartialResults(self.input, self.before, parents, self.blocks, begins, rows, times, words)

    def dropped(self) -> PartialResults:
        keep: NDArray[np.bool_] = np.any(self.words, axis=1)
        return self if keep.all() else self.kept(keep)

    def part(self, first: int, end: int) -> PartialResults:
        """Return a range of the partial results."""
        begins = np.clip(self.begins, first, end) - first
        one = slice(first, end)
        return PartialResults(
            self.input, self.before, self.parents[one], self.blocks, begins,
            self.rows[one], self.times[one], self.words[one],
        )  # fmt: skip

    def of(self, bit: NDArray[np.uint64]) -> PartialResults:
        """Return the partial results of the queries in a mask."""
        keep: NDArray[np.bool_] = np.any(self.words & bit, axis=1)
        return self if keep.all() else self.kept(keep)

    # -- fetching --------------------------------------------------------------------------------------

    def numbers(self, input_: int, name: str) -> NDArray[np.int64]:
        """Return a 64-bit integer column of one input's rows."""
        found: NDArray[np.int64] = raw(self.column(input_, name, pa.int64())).view(np.int64)
        return found

    def column(self, input_: int, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of one input's rows.

        Missing values are NULL. No query reads missing values.
        """
        known = (input_, name)
        if known not in self._fetched:
            self._fetched[known] = fetch(self.rows_of(input_), len(self), name, kind)
        return self._fetched[known]

    def rows_of(self, input_: int) -> list[AddedRows]:
        if input_ not in self._added:
            level, at = self, None
            while level.input != input_:
                at = level.parents if at is None else _gather_rows(level.parents, at)
                assert level.before is not None, "an input that is bound"
                level = level.before
            self._added[input_] = level._locate_rows(at)
        return self._added[input_]

    def _locate_rows(self, at: Int32s | None) -> list[AddedRows]:
        """Return the rows that this level added to partial results `at`."""
        rows = self.rows if at is None else _gather_rows(self.rows, at)
        if len(self.blocks) == 1:
            return [AddedRows(self.blocks[0], rows, np.arange(len(rows), dtype=np.int32))]
        if at is None:
            borders = [*self.begins.tolist(), len(self)]
            every = np.arange(len(self), dtype=np.int32)
            order, ends = every, borders[1:]
            begins = borders[:-1]
        else:
            of = (np.searchsorted(self.begins, at, side="right") - 1).astype(np.uint16)
            order = np.argsort(of, kind="stable").astype(np.int32)
            ends = np.cumsum(np.bincount(of, minlength=len(self.blocks))).tolist()
            begins = [0, *ends[:-1]]
        return [
            AddedRows(block, _gather_rows(rows, indices), indices)
            for block, begin, end in zip(self.blocks, begins, ends, strict=True)
            if len(indices := np.ascontiguousarray(order[begin:end]))
        ]


def fetch(added: Sequence[AddedRows], rows: int, name: str, kind: pa.DataType) -> pa.Array:
    """Gather a column from blocks into one array."""
    sources = [_values(part.block, name) for part in added]
    if width(kind) and all(values is not None and not values.null_count for values in sources):
        out = np.empty(rows, _RAW[width(kind)])
        for part, values in zip(added, sources, strict=True):
            placing.scatter(raw(values), part.rows, part.indices, out)
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
    """Return a column of a block, which has one chunk per column."""
    return block.table.column(name).chunk(0) if name in block.table.column_names else None


def _gather_rows(values: Int32s, at: Int32s) -> Int32s:
    out = np.empty(len(at), np.uint32)
    placing.gather(values.view(np.uint32), at, out)
    return out.view(np.int32)


def gather_times(values: Int64s, at: Int32s) -> Int64s:
    out = np.empty(len(at), np.uint64)
    placing.gather(values.view(np.uint64), at, out)
    return out.view(np.int64)


def new_rows(input_: int, block: Block) -> PartialResults:
    """Return the first level, which has the new rows of one input."""
    rows = np.arange(block.rows, dtype=np.int32)
    return PartialResults(input_, None, rows, [block], np.zeros(1, np.int64), rows, block.times, block.words)


# Residual conditions, tested as soon as all their streams are joined (S48).
#
# A condition may raise an error, for example a division by zero, on a partial result that another condition
# would drop later. An error is therefore ignored first. The condition is tested again on complete results,
# and an error there fails the query. Results and errors do not depend on the probing order.


@dataclass(frozen=True, slots=True)
class ResidualCondition:
    """Condition on rows of several inputs, with its queries.

    Columns are named by input number, as in `0.column`.
    """

    evaluate: Evaluate
    columns: frozenset[str]
    inputs: frozenset[int]
    names: tuple[str, ...]


class PartialTests:
    """Tests the residual conditions of all queries. Equal conditions are tested once (S19)."""

    def __init__(
        self,
        members: Sequence[MultiJoinMember],
        numbers: Mapping[str, int],
        schemas: Sequence[Schema],
        query_bits: QueryBits,
    ) -> None:
        """Compile the conditions. `numbers` are the input numbers by name."""
        both = Schema(tuple(column.of(number) for number, schema in enumerate(schemas) for column in schema))
        self._types = {column.name: arrow_type(column.type) for column in both}
        self._query_bits = query_bits
        users: dict[Expr, list[str]] = {}
        for member in members:
            indices = [numbers[name] for name in member.inputs]
            for part in conjuncts(member.residual):
                users.setdefault(_of_inputs(part, indices), []).append(member.name)
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
        """Return the conditions to test when `target` is joined."""
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
        """Clear queries whose conditions are false. Return the conditions that raised errors."""
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
        """Test postponed conditions on the results of a query.

        An error fails the query.
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
        # A condition without columns still needs a column, from which the row count is taken.
        columns = {"": pa.array(partials.times)}
        for name in condition.columns:
            input_, column = name.split(".", 1)
            columns[name] = partials.column(int(input_), DATA + column, self._types[name])
        if len(indices) < len(partials):
            columns = {name: column.take(pa.array(indices)) for name, column in columns.items()}
        truth = pc.fill_null(condition.evaluate(pa.table(columns)), False)
        held = truth.combine_chunks().to_numpy(zero_copy_only=False)
        partials.words[indices[~held]] &= ~bits


def _of_inputs(expr: Expr, indices: Sequence[int]) -> Expr:
    """Rename `side.column` to `input.column`."""

    def moved(part: Expr) -> Expr | None:
        if not isinstance(part, ColumnRef):
            return None
        side, column = part.name.split(".", 1)
        return ColumnRef(f"{indices[int(side)]}.{column}", part.type)

    return transform(expr, moved)


# Results of each query in a run, in the order of a single join of all streams.
#
# Results are ordered by their latest row, as (timestamp, position in FROM, sequence number), then by the
# sequence numbers of all rows in FROM order.


_TS = "_ts"  # column name of a row's timestamp


@dataclass(frozen=True, slots=True)
class NewRows:
    """New rows of an input.

    `times` are in arrival order, `seqs` and `arrivals` in block order. `order` has the arrival position of
    each row of the block.
    """

    times: Int64s
    order: Int32s
    seqs: Int64s
    arrivals: Int64s


class ResultBuilder:
    """Builds the results of one query.

    `inputs` are its streams in FROM order.
    """

    def __init__(
        self,
        member: MultiJoinMember,
        inputs: Sequence[int],
        schemas: Sequence[Schema],
        seq_bits: int,
        *,
        tied: bool = False,
    ) -> None:
        self._member = member
        self._inputs = inputs
        self._schemas = schemas
        self._seq_bits = seq_bits
        self._tied = tied

    def made(self, found: Sequence[PartialResults], new: Mapping[int, NewRows]) -> pa.Table:
        """Return all results of the query in a run.

        `found` may be in any order.
        """
        rows = sum(map(len, found))
        if not rows:
            return self._empty()
        sources = [_source(one) for one in found]
        caused = [one.rows_of(source)[0].rows for one, source in zip(found, sources, strict=True)]
        numbers = np.ascontiguousarray(
            [np.concatenate([one.numbers(input_, BLOCK_SEQ) for one in found]) for input_ in self._inputs]
        )
        times = np.concatenate([one.times for one in found])
        indices = np.concatenate(
            [np.full(len(one), self._inputs.index(s)) for one, s in zip(found, sources, strict=True)]
        )
        ranks, total = self._ranks(new)
        causes = np.concatenate([ranks[s][at] for s, at in zip(sources, caused, strict=True)])
        order = np.empty(rows, np.int32)
        order_by_cause(np.ascontiguousarray(causes), total, numbers, order)
        causing = numbers[indices, np.arange(rows)][order]
        seqs = rank_seqs(causing, indices[order], self._seq_bits, self._rank_bits)
        arrivals = np.concatenate(
            [gather_times(new[s].arrivals, at) for s, at in zip(sources, caused, strict=True)]
        )
        columns = {"_ts": times[order], "_seq": seqs, "_arr": arrivals[order]}
        index = np.empty(rows, np.int32)
        index[order] = np.arange(rows, dtype=np.int32)
        begins = np.cumsum([0, *map(len, found)])
        for name, side, column in self._member.columns:
            added = [
                AddedRows(part.block, part.rows, index[begin + part.indices])
                for one, begin in zip(found, begins, strict=False)
                for part in one.rows_of(self._inputs[side])
            ]
            own = TIME if column == _TS else DATA + column
            columns[name] = fetch(added, rows, own, arrow_type(self._type_of(side, column)))
        bits = rank_bits(self._seq_bits, self._rank_bits)
        if not self._tied:
            return fan_out(pa.table(columns), bits)
        # With too many bits, `rank_seqs` drops low bits of the number. The full number is then the first tie
        # column.
        lost = self._seq_bits + self._rank_bits > MOST_BITS
        ties = [causing] if lost else []
        for number, tie in enumerate([*ties, *numbers[:, order]]):
            columns[tie_name(number, fan_out_bits(bits) - bits)] = tie
        return pa.table(columns)

    @property
    def _rank_bits(self) -> int:
        return stream_ranks(len(self._inputs))

    def _ranks(self, new: Mapping[int, NewRows]) -> tuple[dict[int, Int32s], int]:
        """Return the rank of each new row by (timestamp, stream, sequence number)."""
        found: dict[int, Int32s] = {}
        for index, input_ in enumerate(self._inputs):
            own = new[input_].times
            ranks = np.arange(len(own))
            for number, other in enumerate(self._inputs):
                if number != index:
                    ranks += np.searchsorted(
                        new[other].times, own, side="left" if number > index else "right"
                    )
            found[input_] = ranks[new[input_].order].astype(np.int32)
        return found, sum(len(new[input_].times) for input_ in self._inputs)

    def _type_of(self, side: int, column: str) -> Type:
        schema = self._schemas[self._inputs[side]]
        return TIMESTAMP if column == _TS else schema.columns[schema.index(column)].type

    def _empty(self) -> pa.Table:
        types = dict.fromkeys(("_ts", "_seq", "_arr"), pa.int64())
        for name, side, column in self._member.columns:
            types[name] = arrow_type(self._type_of(side, column))
        return pa.table({name: pa.array([], kind) for name, kind in types.items()})


def _source(found: PartialResults) -> int:
    while found.before is not None:
        found = found.before
    return found.input


# Indexes of blocks, by key or by time.
#
# A block is sorted by the first key of its input. An index by another key has the order of the rows by that
# key. It is built on first use and dropped with the block.


BY_TIME = -1  # number of the index by time


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """Rows of a block in order of (hash, time).

    `order` has the position of each row in the block; None if the block has the same order.
    """

    hashes: Hashes
    first: Int32s
    times: Int64s
    words: Words
    order: Int32s | None

    @property
    def bytes(self) -> int:
        """Return the memory of the index in addition to the block."""
        if self.order is None:
            return 0
        return sum(a.nbytes for a in (self.hashes, self.first, self.times, self.words, self.order))


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """Block that is probed, with its queries and time range."""

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
        # All hashes are 0, so the first range of the directory contains all rows.
        first[1:] = rows
        hashes = np.zeros(rows, np.uint64)
    else:
        own = column_numbers(block.table, hash_column(key)).view(np.uint64)[by_time]
        index, first = np.empty(rows, np.int32), np.empty(rows, np.int32)
        probe.group(np.ascontiguousarray(own), index, first)
        order, hashes = by_time[index], own[index]
    times, words = block.times[order], np.ascontiguousarray(block.words[order])
    return KeyIndex(np.ascontiguousarray(hashes), first, times, words, np.ascontiguousarray(order))


# Compiled loops that sort results.


_RUN = 16  # insertion sort is used up to this length, merge sort beyond

_numbers_in = types.Array(types.int64, 2, "C", readonly=True)


@kernel(inline="always")
def _after(numbers: Any, one: Any, other: Any) -> Any:
    for side in range(numbers.shape[0]):
        if numbers[side, one] != numbers[side, other]:
            return numbers[side, one] > numbers[side, other]
    return False


@kernel
def _sort(order: Any, other: Any, numbers: Any, start: Any, end: Any) -> None:
    """Sort `order[start:end]` by the columns of `numbers`, the first stream first."""
    sorted_ = True
    for index in range(start + 1, end):
        if _after(numbers, order[index - 1], order[index]):
            sorted_ = False
            break
    if sorted_:
        return
    for low in range(start, end, _RUN):
        for index in range(low + 1, min(low + _RUN, end)):
            row = order[index]
            before = index - 1
            while before >= low and _after(numbers, order[before], row):
                order[before + 1] = order[before]
                before -= 1
            order[before + 1] = row
    width = _RUN
    while width < end - start:
        for low in range(start, end, 2 * width):
            middle, high = min(low + width, end), min(low + 2 * width, end)
            left, right = low, middle
            for index in range(low, high):
                if right == high or (left < middle and not _after(numbers, order[left], order[right])):
                    other[index] = order[left]
                    left += 1
                else:
                    other[index] = order[right]
                    right += 1
        for index in range(start, end):
            order[index] = other[index]
        width *= 2


@typed_kernel(types.void(indices_in, types.int64, _numbers_in, indices_out))
def order_by_cause(causes: Int32s, total: int, numbers: Int64s, order: Int32s) -> None:
    """Sort results by new row, then by all row numbers.

    `total` is the number of causes. `numbers` has one array row per stream, with the row numbers of that
    stream.
    """
    ends = np.zeros(total + 1, np.int64)
    for cause in causes:
        ends[cause + 1] += 1
    for cause in range(total):
        ends[cause + 1] += ends[cause]
    for index in range(len(causes)):
        cause = causes[index]
        order[ends[cause]] = index
        ends[cause] += 1
    other = np.empty(len(causes), np.int32)
    start = np.int64(0)
    for cause in range(total):
        if ends[cause] - start > 1:
            _sort(order, other, numbers, start, ends[cause])
        start = ends[cause]

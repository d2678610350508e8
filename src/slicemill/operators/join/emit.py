"""Ordering of join results, and result tables of each query for one micro-batch.

A chain of two-way joins gives the same order as one join of all streams.

Results are ordered by their newest row, as (timestamp, position in FROM, sequence number), then by the other
rows. In a two-way join, the older rows of one new row are ordered by age, oldest first. They are found in
this order, so that a two-way join neither sorts its results nor stores sequence numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numba import types
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.columns.merge import tie_name, ties_of
from slicemill.columns.order import fan_out, rank_seqs
from slicemill.columns.sequence_bits import MOST_BITS, SEQ_BITS, fan_out_bits, rank_bits
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.join import probe
from slicemill.operators.join.block import BLOCK_SEQ, DATA, TIME, WORD_BITS, QueryBits, column_numbers
from slicemill.operators.join.partials import AddedRows, NewRows, PartialResults, fetch, raw, take
from slicemill.operators.join.probe import indices_in, indices_out, typed_kernel
from slicemill.operators.join.spec import InOrder, JoinMember, SharedJoin
from slicemill.operators.join.state import JoinLine
from slicemill.operators.step import StepContext
from slicemill.types import BIGINT, TIMESTAMP, Schema, Type

# result of one query for one micro-batch: a table of rows, or an error
Answer: TypeAlias = pa.Table | ExpressionError
# results that a micro-batch has found so far: lists of tables, by name of the query
Collected: TypeAlias = dict[str, list[pa.Table]]

# maximum bytes of memory for the results of one query in one micro-batch
MOST_BYTES = 2 << 30

# block column and type of the timestamp and of the sequence number of an input row
_SYSTEM = {"_ts": (TIME, TIMESTAMP), "_number": (BLOCK_SEQ, BIGINT)}


class OrderedResults:
    """Join results in output order, for queries that list the same streams in the same FROM order.

    Such a group of queries is a line (`JoinLine`). `words` has the mask of the queries of each result.
    Columns are gathered on first access.
    """

    def __init__(
        self,
        found: Sequence[PartialResults],
        line: JoinLine,
        new: Sequence[NewRows],
        ranks: Mapping[int, Int32s],
        begin: int,
        end: int,
        *,
        by_numbers: bool,
    ) -> None:
        """Compute the output position of each join result.

        `ranks` has the ranks of the new rows of each input. All ranks are in [begin, end). With `by_numbers`,
        results of one new row are ordered by the sequence numbers of all their rows. Otherwise the results of
        one new row are in the right order already.
        """
        self.line = line
        self._found = list(found)
        self._new = new
        self._fetched: dict[object, pa.Array] = {}
        self._added: dict[int, list[AddedRows]] = {}
        self._at = self._sorted(ranks, end) if by_numbers else self._placed(ranks, begin, end)
        self.words = np.empty((sum(map(len, found)), found[0].words.shape[1]), np.uint64)
        for one, at in zip(found, self._at, strict=True):
            probe.scatter_words(one.words, at, self.words)

    def _placed(self, ranks: Mapping[int, Int32s], begin: int, end: int) -> list[Int32s]:
        """Return the output position of each join result, in the order of the ranks of the new rows."""
        counts = np.zeros(end - begin, np.int32)
        for one in self._found:
            probe.count_by_rank(one.source_rows(), ranks[one.source], begin, counts)
        begins = np.cumsum(counts, dtype=np.int32) - counts
        at = [np.empty(len(one), np.int32) for one in self._found]
        for one, own in zip(self._found, at, strict=True):
            probe.position_by_rank(one.source_rows(), ranks[one.source], begin, begins, own)
        return at

    def _sorted(self, ranks: Mapping[int, Int32s], end: int) -> list[Int32s]:
        """Return the output position of each result, ordered by new row and then by sequence numbers."""
        numbers = [
            np.concatenate([one.numbers(input_, BLOCK_SEQ) for one in self._found])
            for input_ in self.line.inputs
        ]
        causes = np.concatenate([ranks[one.source][one.source_rows()] for one in self._found])
        order, at = np.empty(len(causes), np.int32), np.empty(len(causes), np.int32)
        order_by_cause(np.ascontiguousarray(causes), end, np.ascontiguousarray(numbers), order)
        at[order] = np.arange(len(causes), dtype=np.int32)
        return np.split(at, np.cumsum([len(one) for one in self._found])[:-1])

    def __len__(self) -> int:
        return len(self.words)

    def of(self, bit: int) -> Int32s:
        """Return the output positions of the results of the query that has this mask bit."""
        found: Int32s = probe.pairs_with_bit(self.words, bit // WORD_BITS, np.uint64(1 << bit % WORD_BITS))
        return found

    def drop_empty(self) -> None:
        """Drop join results that no query emits any more."""
        keep: NDArray[np.bool_] = np.any(self.words, axis=1)
        if keep.all():
            return
        renumbered = (np.cumsum(keep) - 1).astype(np.int32)
        mine = [keep[at] for at in self._at]
        self._found = [one.kept(own) for one, own in zip(self._found, mine, strict=True)]
        self._at = [renumbered[at[own]] for at, own in zip(self._at, mine, strict=True)]
        self.words = np.ascontiguousarray(self.words[keep])
        self._added, self._fetched = {}, {}

    # -- fetching --------------------------------------------------------------------------------------

    def added(self, input_: int) -> list[AddedRows]:
        """Return the input rows that the results contain, with the output position of each result."""
        if input_ not in self._added:
            self._added[input_] = [
                part
                for one, at in zip(self._found, self._at, strict=True)
                for part in one.located(input_, at)
            ]
        return self._added[input_]

    def column(self, input_: int, name: str, kind: pa.DataType) -> pa.Array:
        """Return a column of one input's rows, in output order. Values that were not stored are NULL."""
        if (input_, name) not in self._fetched:
            self._fetched[input_, name] = fetch(self.added(input_), len(self), name, kind)
        return self._fetched[input_, name]

    def of_new_rows(self, name: str, values: Callable[[int], Int64s]) -> pa.Array:
        """Return one value for each result, taken from the newest row of the result.

        `values(input)` has the values of all new rows of an input.
        """
        if name not in self._fetched:
            out = np.empty(len(self), np.int64)
            for one, at in zip(self._found, self._at, strict=True):
                probe.scatter(values(one.source).view(np.uint64), one.source_rows(), at, out.view(np.uint64))
            self._fetched[name] = pa.array(out)
        return self._fetched[name]

    def of_older_rows(self, name: str) -> pa.Array:
        """Return an integer system column of the older row of each result of a two-way join.

        The value is 0 if the column was not stored.
        """
        if name not in self._fetched:
            out = np.zeros(len(self), np.int64)
            for one, at in zip(self._found, self._at, strict=True):
                for part in one.located(one.input, at):
                    if name in part.block.table.column_names:
                        values = raw(part.block.table.column(name).chunk(0))
                        probe.scatter(values, part.rows, part.indices, out.view(np.uint64))
            self._fetched[name] = pa.array(out)
        return self._fetched[name]

    def times(self) -> pa.Array:
        return self.of_new_rows("_ts", lambda source: self._new[source].block.times)

    def arrivals(self) -> pa.Array:
        return self.of_new_rows("_arr", lambda source: self._new[source].arrivals)

    def causes(self) -> pa.Array:
        """Return the sequence number of the newest row of each result."""
        return self.of_new_rows("_cause", lambda source: self._new[source].numbers)

    def seqs(self, bits: int) -> pa.Array:
        """Return the sequence number of the newest row of each result, made distinct across streams.

        The number is combined with the position of the row's stream in FROM.
        """
        inputs, ranks = self.line.inputs, self.line.rank_bits
        return self.of_new_rows(
            "_seq",
            lambda source: rank_seqs(self._new[source].numbers, inputs.index(source), bits, ranks),
        )


class ResultTables:
    """Builds the result table of each query for one micro-batch."""

    def __init__(
        self,
        operator: SharedJoin,
        schemas: Sequence[Schema],
        query_bits: QueryBits,
        seq_bits: Mapping[str, int],
    ) -> None:
        """Prepare result tables. `seq_bits` maps a query to the bit width of its input sequence numbers."""
        self._operator = operator
        self._schemas = schemas
        self._query_bits = query_bits
        self._seq_bits = seq_bits
        # number of bytes of each query's results in this micro-batch, by name of the query
        self._bytes: dict[str, int] = {}

    def add(
        self, results: OrderedResults, collected: Collected, errors: dict[str, ExpressionError], *, tied: bool
    ) -> None:
        """Append the results of each query to `collected`.

        With `tied`, the tables get columns that order the results of one new row across subtasks.
        """
        inputs = results.line.inputs
        for member in results.line.members:
            indices = results.of(self._query_bits.bits[member.name])
            if not len(indices) or member.name in errors:
                continue
            bits = self._seq_bits.get(member.name, SEQ_BITS)
            columns = {"_ts": results.times(), "_seq": results.seqs(bits), "_arr": results.arrivals()}
            columns |= self._ties(results, bits) if tied else {}
            for name, side, column in member.columns:
                own, kind = self._source_of(inputs[side], column)
                columns[name] = results.column(inputs[side], own, arrow_type(kind))
            table = pa.table({name: take(column, indices) for name, column in columns.items()})
            parts = collected.setdefault(member.name, [])
            parts.append(table)
            self._bytes[member.name] = self._bytes.get(member.name, 0) + table.nbytes
            if self._bytes[member.name] > MOST_BYTES:
                rows = sum(part.num_rows for part in parts)
                del collected[member.name]
                errors[member.name] = too_many_rows(rows)

    def answers(self, collected: Collected, errors: dict[str, ExpressionError]) -> list[Answer]:
        """Return the table or the error of each query at the end of a micro-batch."""
        self._bytes.clear()
        return [
            errors.get(member.name) or _concat(collected.get(member.name) or [self._empty(member)])
            for member in self._operator.members
        ]

    def _ties(self, results: OrderedResults, bits: int) -> dict[str, pa.Array]:
        """Return the columns that order results of one new row which several subtasks have found.

        If low bits of the new row's number were dropped, the whole number is the first of these columns.
        """
        inputs, ranks = results.line.inputs, results.line.rank_bits
        ties = [results.causes()] if bits + ranks > MOST_BITS else []
        if self._operator.two_way:
            ties += [results.of_older_rows(TIME), results.of_older_rows(BLOCK_SEQ)]
        else:
            ties += [results.column(input_, BLOCK_SEQ, pa.int64()) for input_ in inputs]
        ranked = rank_bits(bits, ranks)
        return {tie_name(index, fan_out_bits(ranked) - ranked): tie for index, tie in enumerate(ties)}

    def _source_of(self, input_: int, column: str) -> tuple[str, Type]:
        """Return the name under which blocks store a column of an input, and the type of the column."""
        schema = self._schemas[input_]
        return _SYSTEM.get(column) or (DATA + column, schema.columns[schema.index(column)].type)

    def _empty(self, member: JoinMember) -> pa.Table:
        inputs = self._operator.ports(member)
        types_ = dict.fromkeys(("_ts", "_seq", "_arr"), pa.int64())
        for name, side, column in member.columns:
            types_[name] = arrow_type(self._source_of(inputs[side], column)[1])
        return pa.table({name: pa.array([], kind) for name, kind in types_.items()})


def too_many_rows(rows: int) -> ExpressionError:
    """Return the error for join results that exceed the memory limit of a micro-batch."""
    return ExpressionError(
        f"a join makes {rows:,} rows and more of one batch of input, which take more than "
        f"{MOST_BYTES >> 20:,} MB of memory; give it smaller windows or a more selective condition"
    )


def _concat(tables: list[pa.Table]) -> pa.Table:
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


# Compiled loops order join results by the sequence numbers of the joined rows.


# Sequences of up to 16 results are sorted by insertion sort, and longer sequences by merge sort.
_RUN = 16

_numbers_in = types.Array(types.int64, 2, "C", readonly=True)


@kernel(inline="always")
def _after(numbers: Any, one: Any, other: Any) -> Any:
    for side in range(numbers.shape[0]):
        if numbers[side, one] != numbers[side, other]:
            return numbers[side, one] > numbers[side, other]
    return False


@kernel
def _sort(order: Any, other: Any, numbers: Any, start: Any, end: Any) -> None:
    """Sort the result indexes in `order[start:end]` by the sequence numbers of their rows, in FROM order."""
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
    """Sort join results by the rank of their new row, then by the sequence numbers of all their rows.

    `causes` has the rank of each result's new row, and `total` is the number of ranks. `numbers` has one
    array row per stream, with the sequence numbers of the stream's rows.
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


# The results of a chain of two-way joins get the order of a single join of all streams.


def in_order(
    table: pa.Table, members: Sequence[tuple[str, str]], seq_bits: int = SEQ_BITS, *, tied: bool = False
) -> pa.Table:
    """Sort joined rows by timestamp, then by their latest input row, then by all sequence numbers.

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
    # If the number and the rank need too many bits, `rank_seqs` drops low bits of the sequence number.
    # The first column that orders results across subtasks is then the full sequence number.
    lost = seq_bits + ranks > MOST_BITS
    for index, tie in enumerate((number, *numbers) if lost else numbers):
        ordered = ordered.append_column(tie_name(index, fan_out_bits(bits) - bits), pa.array(tie[order]))
    return ordered


class InOrderStep:
    """Gives the results of a chain of joins the order of a single join, and drops helper columns."""

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

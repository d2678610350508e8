"""Execution steps of top-n: `ROW_NUMBER() OVER (…) <= n`.

- `FirstRowsStep`: rows are ordered by time, so the first rows of a partition never change
- `BestRowsStep`: each partition has one result row
- `SeveralRowsStep`: each partition has several result rows, with distinct ranks
- `TopRows`: all other cases, processed row by row; `CandidatesStep` filters the input of `TopRows`
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.definition import comparable
from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, to_arrow, with_system_columns
from slicemill.columns.keys import (
    GrowingRows,
    Keys,
    RowsByNumber,
    distinct_keys,
    distinct_numbers,
    extend_array,
    mostly_unused,
)
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.columns.order import Numbering, order_codes, sort_key, sort_positions
from slicemill.columns.ranges import by_partition, last_of_each, running_totals
from slicemill.columns.rows import timed_rows, to_table
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.kernels.kernel import kernel
from slicemill.operators.alignment import Due
from slicemill.operators.changelog.retraction import (
    IncomingChanges,
    changes_between,
    row_changes,
    version_changes,
)
from slicemill.operators.changelog.spec import TopN
from slicemill.operators.row_step import RowState, RowStep, row_of_expressions, row_step
from slicemill.operators.step import CompiledColumns, PartitionNumbers, StepContext
from slicemill.types import Row, Schema, Timed

_SYSTEM = (TS, SEQ, ARRIVAL)


@stored_as("top.first", version=1)
@dataclass(slots=True)
class FirstRowsState:
    """Partition keys, and the number of rows that each partition has received."""

    keys: Keys = field(default_factory=Keys)
    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


class FirstRowsStep:
    """Execution step of top-n ordered by time, where the first rows of a partition never change."""

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, FirstRowsState) else FirstRowsState()
        self._limit = operator.limit
        self._groups = PartitionNumbers(operator.by.partition_by, schema)
        self._columns = [*_SYSTEM, *schema.names]
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._shown = operator.shown

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table, state = tables[0].select(self._columns), self.state
        numbered = self._groups.numbers(table, state.keys)
        distinct, local = distinct_numbers(numbered)
        state.rows = extend_array(state.rows, len(state.keys) or 1)
        order, partitions, _ = by_partition(local, len(distinct))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = running_totals(partitions, np.ones(len(order), np.bool_), state.rows[distinct])
        state.rows[distinct] += np.bincount(local, minlength=len(distinct))
        if self._shown is not None:
            table = table.append_column(self._shown, pa.array(ranks))
        return table.filter(pa.array(ranks <= self._limit)).cast(self._schema), complete[0]

    def due(self) -> int | None:
        return None


@stored_as(
    "top.best", version=2, upgrade={1: lambda plain: {**plain, "best": RowsByNumber.of_all(plain["best"])}}
)
@dataclass(slots=True)
class BestRowsState:
    """Partition keys, and the best row of each partition: the row with rank 1 so far."""

    keys: Keys = field(default_factory=Keys)
    best: RowsByNumber = field(default_factory=RowsByNumber)


class BestRowsStep:
    """Execution step of top-1 per partition, which emits an update whenever the best row changes.

    Stored and new rows are numbered in sort order. The best row of a partition so far is the running
    minimum of these numbers. A constant is subtracted in each partition, so that one running minimum over
    all rows starts again at each partition:

        partition   0   0   0   1   1          number     3   5   1   2   0
        minus       0   0   0   5   5          minimum    3   3   1  -3  -5     best: 1st, 3rd, 4th, 5th
    """

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, BestRowsState) else BestRowsState()
        self._groups = PartitionNumbers(operator.by.partition_by, schema)
        self._order = CompiledColumns([[expr for expr, _ in operator.by.order_by]], schema)
        self._falls = [falls for _, falls in operator.by.order_by]
        self._latest_first = operator.by.latest_first
        self._columns = [*_SYSTEM, *schema.names]
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._shown = operator.shown

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        new, state = _plain(tables[0], self._columns), self.state
        if not new.num_rows:
            return self._schema.empty_table(), complete[0]
        numbered = self._groups.numbers(new, state.keys)
        distinct, local = distinct_numbers(numbered)
        state.best.reach(len(state.keys) or 1)
        indices = state.best.indices[distinct]
        known = np.flatnonzero(indices >= 0)
        rows = state.best.added.behind(indices[known], new).combine_chunks()
        old = len(known)
        all_numbers = np.concatenate([known.astype(np.int32), local])
        codes = [
            order_codes(column, falls)
            for column, falls in zip(self._order.of(rows)[0], self._falls, strict=True)
        ]
        arrival = np.arange(rows.num_rows)
        rank = np.empty(rows.num_rows, np.int64)
        rank[sort_positions(codes, -arrival if self._latest_first else arrival)] = arrival
        order, partitions, head = by_partition(all_numbers, len(distinct))
        lowered = rank[order] - partitions.astype(np.int64) * rows.num_rows
        best = np.ones(len(order), np.bool_)
        best[1:] = lowered[1:] < np.minimum.accumulate(lowered)[:-1]
        sorted_indices = np.arange(len(order))
        # For each row, find the previous best row of its partition: the last earlier row that became best.
        latest = np.maximum.accumulate(np.where(best, sorted_indices, 0))
        before = np.concatenate([np.zeros(1, np.int64), latest[:-1]])
        replaces = best & (order >= old)
        source = order[replaces]
        previous = np.where(sorted_indices > head, order[before], -1)[replaces]
        arranged = np.argsort(source)
        source, previous = source[arranged], previous[arranged]
        causes = rows.select(_SYSTEM).take(pa.array(source))
        made = version_changes(causes, rows.drop_columns(list(_SYSTEM)), previous, source)
        best_rows = order[latest[last_of_each(partitions)]]
        is_new = best_rows >= old
        state.best.replace(distinct[is_new], rows.take(pa.array(best_rows[is_new])))
        if self._shown is not None:
            made = made.append_column(self._shown, pa.array(np.ones(made.num_rows, np.int64)))
        return made.cast(self._schema), complete[0]

    def due(self) -> int | None:
        return None


def _plain(table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Select columns without field metadata such as nullability, which may differ in later tables."""
    return pa.table([table.column(name) for name in names], names=list(names))


def top(
    operator: TopN, context: StepContext
) -> FirstRowsStep | BestRowsStep | SeveralRowsStep | CandidatesStep | RowStep:
    if operator.appends:
        return FirstRowsStep(operator, context)
    if operator.one_each:
        return BestRowsStep(operator, context)
    if operator.several:
        return SeveralRowsStep(operator, context)
    rows = top_rows(operator, context)
    step = row_step(rows, context)
    return step if operator.retracts else CandidatesStep(operator, rows, step, context.schemas[0])


# Top-n with several rows per partition and distinct ranks: `ROW_NUMBER() <= n`.
#
# A new row within the limit is inserted at its position, and the rows behind it move by one position. The row
# that moves beyond the limit is dropped. In the example, the limit is 3:
#
#     places      1    2    3                   changes for the row 7, if places are shown
#     before      9    5    3                   update of place 2: 5 becomes 7
#     7 arrives   9    7    5                   update of place 3: 3 becomes 5
#                                               if not: 3 is deleted, 7 is inserted


def _no_positions() -> Int64s:
    return np.zeros(0, np.int64)


@kernel
def insert_positions(partitions: Int32s, ranks: Int64s, limit: int) -> tuple[Int64s, Int64s]:
    """Return for each row its position in its partition on arrival, and the partition's row count then.

    Positions start at 0. Position -1 marks rows beyond the limit. Rows are ordered by partition, then by
    arrival.
    """
    lowest = np.empty(limit, np.int64)
    taken, counts = np.full(len(ranks), -1, np.int64), np.zeros(len(ranks), np.int64)
    count = 0
    for row in range(len(ranks)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            count = 0
        rank = ranks[row]
        counts[row] = count
        if count < limit:
            count += 1
        elif rank > lowest[limit - 1]:
            continue
        at = count - 1
        while at > 0 and lowest[at - 1] > rank:
            lowest[at] = lowest[at - 1]
            at -= 1
        lowest[at] = rank
        taken[row] = at
    return taken, counts


@kernel
def emit_changes(
    partitions: Int32s, taken: Int64s, caused: Int64s, limit: int, shown: bool
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Return the changes of top rows, as columns: causing row, row before, row after, and position.

    A missing row before or after is -1. `caused` is the number of changes that each row causes. The last
    result has the rows that stay within the limit.
    """
    total = caused.sum()
    cause, index = np.empty(total, np.int64), np.zeros(total, np.int64)
    before, after = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    stay = np.empty(len(taken), np.int64)
    first = np.empty(limit, np.int64)
    count, made, stays = 0, 0, 0
    for row in range(len(taken)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            stay[stays : stays + count] = first[:count]
            stays += count
            count = 0
        at = taken[row]
        if at < 0:
            continue
        full = count == limit
        if not full:
            first[count] = -1
            count += 1
        if caused[row]:
            cause[made : made + caused[row]] = row
            if shown:
                for moved in range(at, count):
                    before[made] = first[moved]
                    after[made] = row if moved == at else first[moved - 1]
                    index[made] = moved
                    made += 1
            else:
                if full:
                    before[made] = first[limit - 1]
                    made += 1
                after[made] = row
                made += 1
        for moved in range(count - 1, at, -1):
            first[moved] = first[moved - 1]
        first[at] = row
    stay[stays : stays + count] = first[:count]
    return cause, before, after, index, stay[: stays + count]


@kernel
def collect_chains(heads: Int64s, following: Int64s) -> tuple[Int64s, Int32s]:
    """Return the positions of all rows in some linked lists, and the index of the list of each row.

    Each list starts at a row of `heads`. `following` has the position of the next row; -1 ends a list.
    """
    count = 0
    for head in heads:
        at = head
        while at >= 0:
            count += 1
            at = following[at]
    indices, chains = np.empty(count, np.int64), np.empty(count, np.int32)
    count = 0
    for chain in range(len(heads)):
        at = heads[chain]
        while at >= 0:
            indices[count], chains[count] = at, chain
            count += 1
            at = following[at]
    return indices, chains


@stored_as("top.several", version=2, upgrade={1: lambda plain: _chain_by_partition(**plain)})
@dataclass(slots=True)
class SeveralRowsState:
    """Top rows of each partition, as one linked list in rank order.

    `heads` has the first row of each partition. `following` has the next row after each row. -1 stands for no
    row.

    added   a1 b1 a2 a3       heads   a  b       following   a1 b1 a2 a3       a: a3, a1
                                      3  1                   -1 -1 -1  0       b: b1
    """

    keys: Keys = field(default_factory=Keys)
    added: GrowingRows = field(default_factory=GrowingRows)
    heads: Int64s = field(default_factory=_no_positions)
    following: Int64s = field(default_factory=_no_positions)
    used: int = 0

    def chains(self, numbers: Int64s) -> tuple[Int64s, Int32s]:
        """Return the positions of the top rows of some partitions, and the index of each row's partition."""
        self.heads = extend_array(self.heads, len(self.keys) or 1, -1)
        return collect_chains(self.heads[numbers], self.following)

    def keep(self, numbers: Int64s, indices: Int64s, chains: Int32s) -> None:
        """Store new top rows for the partitions `numbers`. Each partition must have at least one row."""
        self.following = extend_array(self.following, self.added.rows, -1)
        last = last_of_each(chains)
        self.following[indices] = np.where(last, -1, np.roll(indices, -1))
        self.heads[numbers] = indices[np.roll(last, 1)]

    def tidy(self) -> None:
        """Delete stored rows that are no longer within the limit, if they are the majority."""
        if not mostly_unused(self.added.rows, self.used):
            return
        stay = np.sort(collect_chains(self.heads, self.following)[0])
        self.added = self.added.only(stay)
        self.following = _new_positions(self.following[stay], stay)
        self.heads = _new_positions(self.heads, stay)


def _new_positions(indices: Int64s, stay: Int64s) -> Int64s:
    """Map positions of rows to their new positions after all rows except `stay` were deleted."""
    return np.where(indices < 0, -1, np.searchsorted(stay, indices))


def _chain_by_partition(keys: Keys, rows: pa.Table | None, of: Int32s) -> dict[str, object]:
    """Upgrade a state of version 1, which has one table of all rows, sorted by partition."""
    found = SeveralRowsState(keys)
    if rows is not None and rows.num_rows:
        order = np.argsort(of, kind="stable")
        found.added.add(rows)
        found.heads = extend_array(found.heads, len(keys) or 1, -1)
        found.keep(np.unique(of).astype(np.int64), order, of[order])
        found.used = len(order)
    return {name: getattr(found, name) for name in SeveralRowsState.__slots__}


class SeveralRowsStep:
    """Execution step of top-n with distinct ranks, for insert-only input."""

    def __init__(self, operator: TopN, context: StepContext) -> None:
        (schema,) = context.schemas
        self.state = context.state if isinstance(context.state, SeveralRowsState) else SeveralRowsState()
        self._groups = PartitionNumbers(operator.by.partition_by, schema)
        self._order = CompiledColumns([[expr for expr, _ in operator.by.order_by]], schema)
        self._falls = [falls for _, falls in operator.by.order_by]
        self._latest_first = operator.by.latest_first
        self._limit, self._shown = operator.limit, operator.shown
        self._names = list(schema.names)
        self._schema = with_system_columns(to_arrow(context.node.schema))
        self._numbering = Numbering(context.seq_bits, fans=True)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        new, state = tables[0], self.state
        if not new.num_rows:
            return self._schema.empty_table(), complete[0]
        numbered = self._groups.numbers(new, state.keys)
        # Select columns without field metadata such as nullability, which may differ in later tables.
        fresh = pa.table([new.column(name) for name in self._names], names=self._names)
        distinct, local = distinct_numbers(numbered)
        indices, chains = state.chains(distinct)
        rows, old = state.added.behind(indices, fresh).combine_chunks(), len(indices)
        of = np.concatenate([chains, local])
        order, partitions, _ = by_partition(of, len(distinct))
        ranks = self._ranks(rows, old)[order]
        taken, counts = insert_positions(partitions, ranks, self._limit)
        full = counts == self._limit
        shown = self._shown is not None
        caused = np.where(full, counts - taken, counts + 1 - taken) if shown else 1 + full
        caused = np.where((taken >= 0) & (order >= old), caused, 0).astype(np.int64)
        cause, before, after, index, stay = emit_changes(partitions, taken, caused, self._limit, shown)
        stays = order[stay]
        comes = stays[stays >= old]
        lies = np.empty(rows.num_rows, np.int64)
        lies[:old], lies[comes] = indices, state.added.rows + np.arange(len(comes))
        state.added.add(rows.take(pa.array(comes)))
        state.keep(distinct, lies[stays], of[stays])
        state.used += len(stays) - old
        state.tidy()
        arranged = np.argsort(order[cause], kind="stable")
        causes = new.select(_SYSTEM).take(pa.array(order[cause][arranged] - old))
        before, after = (np.where(rank < 0, -1, order[rank])[arranged] for rank in (before, after))
        compared = []
        if self._shown is not None:
            causes = causes.append_column(self._shown, pa.array(index[arranged] + 1))
            compared = self._names
        made = version_changes(causes, rows, before, after, compared)
        return self._numbering.apply(made.select(self._schema.names).cast(self._schema)), complete[0]

    def _ranks(self, rows: pa.Table, old: int) -> Int64s:
        """Return the rank of each row among all stored and new rows.

        Stored rows precede new rows with equal sort keys, unless the latest row is ranked first.
        """
        columns = self._order.of(rows)[0]
        codes = [order_codes(column, falls) for column, falls in zip(columns, self._falls, strict=True)]
        arrival = np.arange(rows.num_rows)
        if self._latest_first:
            arrival = np.concatenate([arrival[:old], old - arrival[old:] - 1])
        ranks = np.empty(rows.num_rows, np.int64)
        ranks[sort_positions(codes, arrival)] = np.arange(rows.num_rows)
        return ranks

    def due(self) -> int | None:
        return None


# Pre-filter of top-n, which passes only new rows that can be within the limit on arrival.


@kernel
def among_first(
    partitions: NDArray[np.int32], indices: Int64s, limit: int, differ: bool
) -> NDArray[np.bool_]:
    """Mark each row whose sort position is among the `limit` lowest positions of its partition on arrival.

    Rows are ordered by partition and arrival. If `differ` is set, equal positions count once.
    """
    lowest = np.empty(limit, np.int64)
    out = np.zeros(len(indices), np.bool_)
    count = 0
    for row in range(len(indices)):
        if row == 0 or partitions[row] != partitions[row - 1]:
            count = 0
        index = indices[row]
        if count == limit and index > lowest[limit - 1]:
            continue
        out[row] = True
        at = count
        while at > 0 and lowest[at - 1] > index:
            at -= 1
        if differ and at > 0 and lowest[at - 1] == index:
            continue
        if count < limit:
            count += 1
        for moved in range(count - 1, at, -1):
            lowest[moved] = lowest[moved - 1]
        if at < limit:
            lowest[at] = index
    return out


class CandidatesStep:
    """Execution step of top-n that processes only candidates: rows that can be within the limit on arrival.

    The candidates are processed one by one (`TopRows`).
    """

    def __init__(self, operator: TopN, rows: TopRows, step: RowStep, schema: Schema) -> None:
        self._operator = operator
        self._rows = rows
        self._step = step
        self._schema = schema
        self._columns = CompiledColumns(
            [operator.by.partition_by, [expr for expr, _ in operator.by.order_by]], schema
        )

    @property
    def state(self) -> RowState:
        return self._step.state

    def bytes_kept(self) -> int:
        return self._step.bytes_kept()

    def due(self) -> Due | None:
        return self._step.due()

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return self._step.run([self._candidates(tables[0])], complete)

    def _candidates(self, table: pa.Table) -> pa.Table:
        if not table.num_rows:
            return table
        by = self._operator.by
        new = table.select(self._schema.names)
        firsts = distinct_keys(self._columns.of(new)[0], new.num_rows).rows
        stored = [
            Timed(0, row)
            for row in self._rows.stored_rows(timed_rows(table.take(pa.array(firsts)), self._schema))
        ]
        known = to_table(stored, self._schema, [0] * len(stored)).select(self._schema.names)
        rows = pa.concat_tables([known, new.cast(known.schema)]).combine_chunks()
        keys, columns = self._columns.of(rows)
        codes = [order_codes(column, falls) for column, (_, falls) in zip(columns, by.order_by, strict=True)]
        arrival = np.arange(len(rows))
        order = sort_positions(codes, -arrival if by.latest_first else arrival)
        indices = np.empty(len(rows), np.int64)
        indices[order] = arrival
        if by.function != "row_number":
            # For RANK and DENSE_RANK, rows with equal sort keys have the position of their first row.
            other = np.zeros(len(rows), np.bool_)
            for code in codes:
                other[1:] |= code[order][1:] != code[order][:-1]
            indices[order] = np.cumsum(other)
        found = distinct_keys(keys, len(rows))
        sorted_rows, partitions, _ = by_partition(found.codes.astype(np.int32), max(len(found.values), 1))
        chosen = np.zeros(len(rows), np.bool_)
        chosen[sorted_rows] = among_first(
            partitions, indices[sorted_rows], self._operator.limit, by.function == "dense_rank"
        )
        return table.filter(pa.array(chosen[len(stored) :]))


# Top-n, processed row by row.
#
# Each input row causes the changes that replace the old rows within the limit by the new rows.


class RankedRow(NamedTuple):
    """Row with its sort key and arrival number."""

    key: tuple[Any, ...]
    arrival: int
    row: Row


@dataclass(slots=True)
class TopRows:
    """Top-n that processes rows one by one.

    `partition` and `order` are functions of a row. If the input is a changelog, the first column of a row is
    its operation. Otherwise rows beyond the limit can never return and are dropped.
    """

    operator: TopN
    partition: Callable[[Row], Row]
    order: Callable[[Row], Row]
    inputs: int = 1
    waits_for_time: bool = False
    _partitions: ObjectsByKey[Row, list[RankedRow]] = field(init=False)
    _arrived: int = 0
    _incoming: IncomingChanges = field(init=False)

    def __post_init__(self) -> None:
        self._partitions = ObjectsByKey(_plain_partition, self._made)
        self._incoming = IncomingChanges(self.operator.retracts)

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:  # noqa: ARG002
        change = self._incoming.read(tuple_.row)
        if change is None:
            return ()
        retracted, inserted = change
        visible: dict[Row, list[tuple[RankedRow, Row]]] = {}
        for row in change:
            if row is not None:
                key = comparable(self.partition(row))
                visible.setdefault(key, self._visible(key))
        follows: dict[int, int] = {}  # arrival number of each replaced row -> arrival number of the new row
        if retracted is not None:
            replaced = self._remove(retracted)
            if inserted is not None:
                follows[replaced.arrival] = self._placed(self._arrived + 1)
        if inserted is not None:
            self._insert(inserted)
        changes = [one for key, before in visible.items() for one in self._changes(key, before, follows)]
        return [Timed(tuple_.ts, one) for one in changes]

    def advance(self, ts: int) -> Sequence[Timed]:  # noqa: ARG002
        return ()

    def finish(self) -> Sequence[Timed]:
        return ()

    def stored_rows(self, rows: Sequence[Timed]) -> list[Row]:
        """Return all stored rows of the partitions to which `rows` belong, in arrival order."""
        keys = dict.fromkeys(comparable(self.partition(timed.row)) for timed in rows)
        entries = [entry for key in keys for entry in self._partitions.get(key) or ()]
        return [entry.row for entry in sorted(entries, key=lambda entry: abs(entry.arrival))]

    def _ranked(self, row: Row, arrival: int) -> RankedRow:
        falls = [falls for _, falls in self.operator.by.order_by]
        return RankedRow(sort_key(self.order(row), falls), self._placed(arrival), row)

    def _placed(self, arrival: int) -> int:
        return -arrival if self.operator.by.latest_first else arrival

    def _insert(self, row: Row) -> None:
        key = comparable(self.partition(row))
        self._arrived += 1
        stored = self._partitions.change(key)
        if stored is None:
            stored = []
            self._partitions.put(key, stored)
        insort(stored, self._ranked(row, self._arrived), key=lambda entry: entry[:2])
        if not self.operator.retracts:
            del stored[len(self._ranks(stored)) :]

    def _remove(self, row: Row) -> RankedRow:
        key, wanted = comparable(self.partition(row)), comparable(row[1:])
        stored = self._partitions.change(key)
        assert stored is not None, "a retracted row was inserted before"
        found = [index for index, entry in enumerate(stored) if comparable(entry.row[1:]) == wanted]
        # If several stored rows are equal to the retracted row, delete the row that arrived first.
        left = stored.pop(min(found, key=lambda index: abs(stored[index].arrival)))
        if not stored:
            self._partitions.remove(key)
        return left

    def _ranks(self, stored: Sequence[RankedRow]) -> list[int]:
        """Return the ranks of the sorted rows of a partition, up to the limit."""
        ranks: list[int] = []
        function, limit = self.operator.by.function, self.operator.limit
        for index, entry in enumerate(stored):
            rank = index + 1
            if function != "row_number" and index:
                same = entry.key == stored[index - 1].key
                following = ranks[-1] + 1 if function == "dense_rank" else rank
                rank = ranks[-1] if same else following
            if rank > limit:
                break
            ranks.append(rank)
        return ranks

    def _visible(self, key: Row) -> list[tuple[RankedRow, Row]]:
        """Return the rows of a partition that are within the limit, each with its output row."""
        stored = self._partitions.get(key) or []
        first = 1 if self.operator.retracts else 0
        return [
            (entry, (*entry.row[first:], rank) if self.operator.shown is not None else entry.row[first:])
            for entry, rank in zip(stored, self._ranks(stored), strict=False)
        ]

    def _changes(
        self, key: Row, before: list[tuple[RankedRow, Row]], follows: Mapping[int, int]
    ) -> list[Row]:
        now = self._visible(key)
        if self.operator.updates_by_position:
            # Result rows are identified by rank, so the new row of a rank is an update of the old row.
            pairs = zip_longest((row for _, row in before), (row for _, row in now))
            return [change for pair in pairs for change in row_changes(*pair)]
        previous = {follows.get(entry.arrival, entry.arrival): row for entry, row in before}
        return list(changes_between(previous, {entry.arrival: row for entry, row in now}))

    def state(self) -> Any:
        return {"ranked": self._partitions, "arrived": self._arrived, "before": self._incoming.before}

    def restore(self, state: Any) -> None:
        self._arrived, self._incoming.before = state["arrived"], state["before"]
        if "ranked" in state:
            self._partitions = state["ranked"].opened(_plain_partition, self._made)
        else:  # the checkpoint is of an early version, which stored all partitions in one dict
            for key, stored in state["partitions"].items():
                self._partitions.put(key, self._made(stored))

    def _made(self, plain: Any) -> list[RankedRow]:
        return [self._ranked(row, arrival) for arrival, row in plain]


def _plain_partition(stored: list[RankedRow]) -> Any:
    return [(abs(entry.arrival), entry.row) for entry in stored]


def top_rows(operator: TopN, context: StepContext) -> TopRows:
    (schema,) = context.schemas
    order = row_of_expressions([expr for expr, _ in operator.by.order_by], schema)
    return TopRows(operator, row_of_expressions(operator.by.partition_by, schema), order)

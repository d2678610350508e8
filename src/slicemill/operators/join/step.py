"""Execution of shared window joins, which join the rows of several queries at once.

A micro-batch consumes the rows that no later input can precede. These rows probe the slices of the other
inputs and each other. They are then stored in slices. Results have the order of the row-by-row reference: by
the newest row (timestamp, input, arrival), then by the older rows, oldest first.

If every subtask of the task reads all rows, each subtask stores only one stripe, a hash range of sequence
numbers. The pair is found by the subtask that stores the older row, and by no other subtask (PSP-D, S33).
New rows of all stripes probe. Among the new rows, a probing row matches only rows of the subtask's own
stripe.

A query that is added later gets only results whose rows have all arrived since the query started. If another
query has stored rows that the new query would also have stored, the new query uses them (S23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.queries import JoinKind
from slicemill.columns.arrow_schema import TS
from slicemill.columns.order import fan_out
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.errors import SlicemillError
from slicemill.functions.values import ExpressionError
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.alignment import Due, due_in_turn
from slicemill.operators.join import probe
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    FOREVER,
    HASH,
    TIME,
    QueryBits,
    column_numbers,
    group_by_hash,
)
from slicemill.operators.join.emit import Answer, Collected, OrderedResults, ResultTables
from slicemill.operators.join.heavy_keys import NO_WORK, broadcast_mask, local_mask
from slicemill.operators.join.partials import NewRows
from slicemill.operators.join.prepare import RowPreparer, Selections
from slicemill.operators.join.search import ResultSearch
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.join.spec import InOrder, JoinMember, KeyTable, SharedJoin, result_bits
from slicemill.operators.join.state import JoinSide, JoinState, RowTakeover, SideState, lines_of, split_ready
from slicemill.operators.join.unmatched import UnmatchedTracker
from slicemill.operators.step import SharedStep, StatefulStep, StepContext, StepResult, bits_of
from slicemill.operators.subtask import WHOLE, HeavyKey, Subtask
from slicemill.shedding.accuracy import AccuracyReport, AccuracySums
from slicemill.shedding.load import Comparisons, SheddingDecision
from slicemill.storage.state_size import state_bytes
from slicemill.time import BEGINNING
from slicemill.types import Schema

# number of new rows of each input per micro-batch for which the selecting queries are counted
_SAMPLED = 1 << 12
_NO_NUMBERS = np.zeros(0, np.int64)


def shared_join(operator: SharedJoin, context: StepContext) -> StatefulStep | SharedStep:
    state = context.state if isinstance(context.state, JoinState) else JoinState()
    sources = dict(zip(operator.inputs, context.node.inputs, strict=True))
    bits = {
        member.name: bits_of([sources[name] for name in member.inputs], context.graph, context.catalog)
        for member in operator.members
    }
    is_link = _is_link(context)
    # In a chain of joins, the next join runs in the same subtask and reads all results of this join.
    subtask = WHOLE if is_link else context.subtask
    kind = SharedJoinStep if context.graph.has_parts(context.node.id) else JoinStep
    return kind(
        operator, context.schemas, state, context.newcomers, bits, subtask=subtask, in_turn=not is_link
    )


def _is_link(context: StepContext) -> bool:
    """Return True if this join is part of a chain of two-way joins.

    A join of three or more streams may run as a chain of two-way joins, whose order can differ from FROM.
    Rows of equal timestamps are therefore joined together when the timestamp is complete. `InOrder` then
    restores the order of FROM.
    """
    graph, own = context.graph, context.node.id
    chained = (node.id for node in graph if isinstance(node.operator, InOrder))
    return any(own in graph.ancestors(node_id) for node_id in chained)


class SharedJoinStep:
    """Execution of a shared join, which returns one result table per query."""

    def __init__(
        self,
        operator: SharedJoin,
        schemas: Sequence[Schema],
        state: JoinState,
        newcomers: Covers | None = None,
        seq_bits: Mapping[str, int] | None = None,
        *,
        subtask: Subtask = WHOLE,
        in_turn: bool = True,
    ) -> None:
        """Build the execution of a shared join on its stored state.

        `newcomers` are queries that start without rows, even if a query of the same name and definition ran
        before. `seq_bits` maps each query to the number of bits in the sequence numbers of its input rows.
        With `in_turn`, rows are read in (timestamp, input) order. Otherwise all rows of a timestamp are read
        together when the timestamp is complete.
        """
        self.state = state
        # number of rows and compared pairs of the most frequent keys in the last micro-batch
        self.key_work = NO_WORK
        self._operator = operator
        self._schemas = schemas
        self._seq_bits = seq_bits or {}
        self._subtask = subtask
        self._in_turn = in_turn
        self._heavy: tuple[HeavyKey, ...] = ()
        self._shares: Mapping[str, float] = {}
        # number of rows of the last micro-batch that another subtask counts as arrived
        self._foreign = 0
        # errors of query conditions on stored rows, which the next micro-batch reports
        self._problems: dict[str, ExpressionError] = {}
        names = {member.name for member in operator.members}
        new = {name: by for name, by in (newcomers or {}).items() if name in names}
        known, before = state.query_bits, state.query_bits.without(new)
        state.query_bits = before.assign_to(operator.members)
        state.sides = {name: state.sides.get(name, SideState()) for name in operator.inputs}
        # The following properties of the join are computed once, because each micro-batch needs them.
        self._two_way = operator.two_way
        self._keyed = operator.two_way and bool(operator.keys[0])
        self._counts_rows = operator.counts_rows
        self._limited = [member for member in operator.members if member.limit is not None]
        self._ports = {member.name: operator.ports(member) for member in operator.members}
        self._result_bits = {
            member.name: result_bits(member, self._seq_bits.get(member.name, SEQ_BITS))
            for member in operator.members
        }
        self._numbered = [self._stores_numbers(number) for number in range(len(operator.inputs))]
        keys = KeyTable(operator.inputs, operator.members)
        self._entries = [
            RowPreparer(operator, number, schema, keys, state.query_bits)
            for number, schema in enumerate(schemas)
        ]
        self._unmatched = UnmatchedTracker(operator, schemas, state.query_bits, self._seq_bits)
        self._outer = bool(self._unmatched)
        self._tracked = [self._unmatched.tracks_side(number) for number in range(len(schemas))]
        self._sides = self._make_sides()
        self._lines = lines_of(operator, state.query_bits, state.late, self._late_side, in_turn=in_turn)
        if known.members and before != state.query_bits:
            self._change_queries(state.query_bits.same_queries(before), new, known)
        self._tables = ResultTables(operator, schemas, state.query_bits, self._seq_bits)
        self.search = ResultSearch(operator, keys, schemas, state, self._sides, self._lines)

    def _stores_numbers(self, number: int) -> bool:
        """Return True if the rows of a join input are stored with their sequence numbers.

        If stored rows have numbers, new rows need them too, because the order of results may depend on them.
        """
        members, side = self._operator.members, self.state.sides[self._operator.inputs[number]]
        return (
            not self._two_way
            or self._tied
            or any((number, "_number") in [column[1:] for column in member.columns] for member in members)
            or any(number in member.kind.judged for member in members)
            or side.has_numbers()
        )

    def _make_sides(self) -> list[JoinSide]:
        state = self.state
        return [
            JoinSide(
                state.sides[name],
                state.query_bits,
                name,
                self._entries[number].schema,
                state.measures.writing,
                self._numbered[number],
                self._tracked[number],
            )
            for number, name in enumerate(self._operator.inputs)
        ]

    def _late_side(self, number: int, late: SideState) -> JoinSide:
        name, schema = self._operator.inputs[number], self._entries[number].schema
        return JoinSide(late, self.state.query_bits, name, schema, asked=True)

    def _change_queries(self, stayed: list[str], new: Covers, known: QueryBits) -> None:
        """Update the masks of stored rows after queries were added or removed."""
        for number, side in enumerate(self._sides):
            side.change(stayed, self._takeovers(new, number, known))
            for line in self._lines:
                if number in line.late:
                    line.late[number].change(stayed)
        self.state.measures.begin_anew()

    def _takeovers(self, newcomers: Covers, number: int, known: QueryBits) -> list[RowTakeover]:
        """Return the new queries that take over rows of one input that are stored for another query.

        The other query may have been removed in the meantime.
        """
        input_, found = self._operator.inputs[number], []
        for name, by in newcomers.items():
            member = self.state.query_bits.members[name]
            side = member.side_of(input_)
            other = known.members.get(by[side] or "") if side is not None and side < len(by) else None
            if side is None or other is None:
                continue
            there = other.side_of(input_)
            assert there is not None, "it serves this side"
            same = member.selections[side] == other.selections[there]
            where = {name: None if same else member.selections[side]}
            chosen = Selections(where, self._schemas[number], self.state.query_bits)
            holds = partial(_holds, chosen, self._problems)
            found.append(RowTakeover(name, known.mask([other.name]), holds))
        return found

    # -- what the driver reads and sets ----------------------------------------------------------------

    @property
    def compared(self) -> Comparisons:
        return self.search.compared.found()

    def bytes_kept(self) -> int:
        return state_bytes({"": self.state}) + self.search.index_bytes

    @property
    def _tied(self) -> bool:
        """Return True if several subtasks find join results of the same new row.

        The results then need columns that order them across subtasks.
        """
        return self._subtask.tied or bool(self._heavy)

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        """Set the heavy keys: keys with so many rows that the rows are spread over all subtasks.

        The keys are used from the next micro-batch on.
        """
        self._heavy = heavy
        if self._tied and not all(self._numbered):
            self._numbered = [True for _ in self._numbered]
            self._sides[:] = self._make_sides()

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:  # noqa: ARG002
        """Map each query that sheds load to the report of its missing results."""
        known = self.state.sheds
        return {member.name: known[member.name] for member in self._limited if member.name in known}

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:  # noqa: ARG002
        """Set for each query the share of its windows that the next micro-batch searches for matches."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self.search.shorten({name: found.reach for name, found in dropping.items() if found.reach < 1})

    def _count(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> None:
        """Estimate the number of join results that load shedding has skipped.

        Skipped probes are assumed to match as often as executed probes.
        """
        for member in self._limited:
            ports = self._ports[member.name]
            own = [tables[port] for port in ports if tables[port].num_rows]
            rows = sum(table.num_rows for table in own) - self._foreign
            if rows:
                report = self.state.sheds.setdefault(member.name, AccuracyReport())
                report.arrived += rows
                latest = max(int(pc.max(table.column(TS)).as_py()) for table in own)
                sums = AccuracySums(self._shares.get(member.name, 1.0) * rows, rows)
                report.add(min(latest, *(complete[port] for port in ports)), sums)

    def due(self) -> Due | None:
        firsts = [side.next_ts() for side in self._sides]
        if not self._in_turn:
            return min((ts + 1 for ts in firsts if ts is not None), default=None)
        if not self._two_way:
            return [due for line in self._lines if (due := line.due(firsts)) is not None] or None
        waiting, unmatched = due_in_turn(firsts), self._due_unmatched()
        if waiting is None or unmatched is None:
            return waiting or unmatched
        return min(waiting, unmatched, key=max)

    def _due_unmatched(self) -> tuple[int, ...] | None:
        """Return the watermark that each input must reach before the next unmatched row is emitted.

        The result is None if no row is unmatched.
        """
        due = self._unmatched.due(self._sides) if self._outer else None
        if due is None:
            return None
        # An input has reached the timestamp of its last waiting row, because its rows are in time order.
        lasts = (side.last_ts() for side in self._sides)
        return tuple(BEGINNING if last is not None and last >= due else due for last in lasts)

    # -- runs ------------------------------------------------------------------------------------------

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        """Join the new rows of all inputs in one micro-batch. The rows of each input are in time order."""
        answers = self._run(tables, complete)
        self._count(tables, complete)
        return [
            answer if isinstance(answer, SlicemillError) else (answer, min(complete[port] for port in ports))
            for ports, answer in zip(self._ports.values(), answers, strict=True)
        ]

    def _run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> list[Answer]:
        errors, self._problems = self._problems, {}
        self.search.compared.begin_anew()
        self._foreign = 0
        for entry, side, table in zip(self._entries, self._sides, tables, strict=True):
            if table.num_rows:
                numbers = side.numbers_for(column_numbers(table, "_ts")) if side.numbered else None
                rows, lone = entry.prepare(table, numbers, errors)
                side.store_null_keys(lone)
                self._foreign += self._foreign_rows(rows)
                side.arrive(rows)
        known = self._watermarks(tables, complete) if self._in_turn else complete
        new, moments = self._release(known)
        times = {number: rows.times for number, rows in enumerate(new)}
        ranks = [
            {n: own[new[n].order].astype(np.int32) for n, own in line.ranks(times).items()}
            for line in self._lines
        ]
        collected: Collected = {}
        for found in self.search.find(new, ranks[0], errors):
            for number, parts in found.by_line.items():
                line = self._lines[number]
                ends = (found.begin, found.end) if self._two_way else (0, _total(ranks[number]))
                results = OrderedResults(parts, line, new, ranks[number], *ends, by_numbers=not self._two_way)
                if self._outer:
                    self._unmatched.note(results)
                self._tables.add(results, collected, errors, tied=self._tied)
        if self._keyed and self._subtask.count > 1 and not self._subtask.tied:
            self.key_work = self.search.work_by_key(new)
        alone = self._unmatched_rows(new, min(known))
        for side, consumed in zip(self._sides, moments, strict=True):
            side.count_consumed(consumed)
        self._store(new, complete)
        answers = self._tables.answers(collected, errors)
        if self._tied:
            return answers
        return [
            answer if isinstance(answer, ExpressionError) else self._with_numbers(member, answer, alone)
            for member, answer in zip(self._operator.members, answers, strict=True)
        ]

    def _foreign_rows(self, prepared: pa.Table) -> int:
        """Return the number of arriving rows that another subtask counts, because their key is heavy.

        All subtasks read the rows of a heavy key, but only the key's home subtask counts them.
        """
        away = [key for key in self._heavy if key.home != self._subtask.number]
        if not away:
            return 0
        found = broadcast_mask(away, column_numbers(prepared, HASH), column_numbers(prepared, BLOCK_TS))
        return int(np.count_nonzero(found))

    def _watermarks(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> list[int]:
        """Return the time that each input has reached.

        This time is the watermark of the input, or the timestamp of its last row if that is later.
        """
        found = []
        for number, (told, table) in enumerate(zip(complete, tables, strict=True)):
            waiting = [
                self._sides[number],
                *(line.late[number] for line in self._lines if number in line.late),
            ]
            lasts = [ts for side in waiting if (ts := side.last_ts()) is not None]
            lasts += [int(table.column(TS)[-1].as_py())] if table.num_rows else []
            found.append(max([told, *lasts]))
        return found

    def _release(self, known: Sequence[int]) -> tuple[list[NewRows], list[Int64s]]:
        """Return the new rows of each input that can be joined now, and the timestamps of consumed rows.

        The timestamps are those of all consumed rows of each stream. They are returned only if a window
        counts rows.
        """
        below = [line.below(known) for line in self._lines]
        ready: list[tuple[pa.Table, pa.Table, Int64s]] = []
        for number, side in enumerate(self._sides):
            mine = [(line, at[number]) for line, at in zip(self._lines, below, strict=True) if number in at]
            until = max((at for _, at in mine), default=BEGINNING)
            stored = side.ready(until)
            now, whole = split_ready(stored, number, mine)
            ready.append((now, now if whole else stored, side.moments_below(until)))
        new = [self._grouped(number, ready) for number in range(len(ready))]
        return new, [moments for _, _, moments in ready]

    def _grouped(self, number: int, ready: Sequence[tuple[pa.Table, pa.Table, Int64s]]) -> NewRows:
        """Group the new rows of one join input by their join key."""
        table, stored, _ = ready[number]
        words = self.state.query_bits.words
        names = [TIME if name == BLOCK_TS else name for name in table.column_names]
        kept = [
            name for name in names if name != BLOCK_ARRIVAL and (name != BLOCK_SEQ or self._numbered[number])
        ]
        times, seqs, arrivals = (column_numbers(table, name) for name in (BLOCK_TS, BLOCK_SEQ, BLOCK_ARRIVAL))
        block, order = group_by_hash(table.rename_columns(names).select(kept), words)
        if self._tracked[number]:
            block = replace(block, pending=block.words & self._unmatched.judged[number])
        own = block
        mine: NDArray[np.bool_] | None = None
        if self._subtask.by_time or self._heavy:
            stored_times, stored_seqs = (column_numbers(stored, name) for name in (BLOCK_TS, BLOCK_SEQ))
            hashes = column_numbers(stored, HASH)
            mine = local_mask(self._subtask, self._heavy, hashes, stored_times, stored_seqs)
        if stored is not table or (mine is not None and not mine.all()):
            inside = stored.rename_columns(names).select(kept)
            inside = inside if mine is None else inside.filter(pa.array(mine)).combine_chunks()
            own, _ = group_by_hash(inside, words)
        seen = _NO_NUMBERS
        if self._counts_rows:
            other = 1 - number
            met = probe.count_before(times, ready[other][2], number)
            seen = (self._sides[other].state.seen + met)[order]
        return NewRows(block, own, times, order, seqs[order], arrivals[order], seen)

    def _unmatched_rows(self, new: Sequence[NewRows], known: int) -> dict[str, pa.Table]:
        """Map each outer join to its rows that have no match and can no longer find one."""
        blocks = [rows.block for rows in new]
        found = {
            member.name: self._unmatched.told(member, self._sides, blocks, known)
            for member in self._operator.members
            if member.kind.outer_inputs
        }
        return {name: table for name, table in found.items() if table is not None}

    def _with_numbers(self, member: JoinMember, results: pa.Table, alone: Mapping[str, pa.Table]) -> pa.Table:
        """Return the joined and the unmatched rows of a query, with distinct sequence numbers."""
        whole = results
        if member.kind is not JoinKind.INNER:
            whole = self._unmatched.with_pairs(member, alone.get(member.name), results)
        return fan_out(whole, self._result_bits[member.name])

    # -- storing ---------------------------------------------------------------------------------------

    def _store(self, new: Sequence[NewRows], complete: Sequence[int]) -> None:
        """Store the new rows of a micro-batch, and evict stored rows that no later row can match.

        At the end of time no row follows, so no row has to be stored.
        """
        untils = [
            min((line.complete(complete) for line in self._lines if number in line.inputs), default=FOREVER)
            for number in range(len(new))
        ]
        if self._two_way and untils[0] < FOREVER:
            self._measure_sides(new, untils[0])
        for number, (side, rows, until) in enumerate(zip(self._sides, new, untils, strict=True)):
            if until < FOREVER:
                if not self._two_way:
                    self._measure_input(number, rows, until)
                side.add(rows.stored, until)
        self.search.end_run()
        if not self._two_way and self.state.measures.orders_are_due():
            self.search.plan_orders()

    def _measure_input(self, number: int, rows: NewRows, until: int) -> None:
        """Update the row count of one input, in a join of three or more streams."""
        measures = self.state.measures
        measures.reached_us = max(measures.reached_us, until)
        if rows.stored.rows:
            measures.side(self._operator.inputs[number]).rows += rows.stored.rows
            first = int(rows.stored.times.min())
            measures.first_us = first if measures.first_us is None else min(first, measures.first_us)

    def _measure_sides(self, new: Sequence[NewRows], until: int) -> None:
        """Update the statistics of a two-way join, and plan slice borders if enough rows have arrived."""
        measures = self.state.measures
        begins = [int(rows.block.times.min()) for rows in new if rows.block.rows]
        if not begins:
            return
        elapsed_s = measures.time_passes(min(begins), until)
        for name, side, rows in zip(self._operator.inputs, self._sides, new, strict=True):
            window_s = side.reach.longest_s
            if window_s is not None and elapsed_s > 0:
                held = sum(stored.rows for stored in side.state.slices)
                measures.side(name).time_passes(held, rows.stored.rows, elapsed_s, window_s)
                # Rows are ordered by the hash of their key, so the first rows are a random sample.
                measures.side(name).sample(*side.count_by_query(rows.stored, _SAMPLED))
        if measures.cuts_are_due():
            for name, side in zip(self._operator.inputs, self._sides, strict=True):
                cuts = measures.cuts(name, side.reach)
                side.state.cuts_us = None if cuts is None else tuple(round(c * 1_000_000) for c in cuts.used)


class JoinStep(SharedJoinStep):
    """Execution of a join that serves a single query."""

    def run(  # type: ignore[override]
        self, tables: Sequence[pa.Table], complete: Sequence[int]
    ) -> tuple[pa.Table, int]:
        (part,) = super().run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part


def _total(ranks: Mapping[int, Int32s]) -> int:
    return sum(map(len, ranks.values()))


def _holds(selections: Selections, errors: dict[str, ExpressionError], table: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(selections.masks(table, errors).any(axis=1))

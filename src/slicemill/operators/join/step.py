"""Execution of two-way window joins, for one query or several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.queries import JoinKind
from slicemill.columns.arrow_schema import TS
from slicemill.columns.merge import tie_name
from slicemill.columns.order import fan_out, rank_seqs
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits
from slicemill.errors import SlicemillError
from slicemill.functions.values import ExpressionError
from slicemill.kernels.arrays import Int32s, Int64s
from slicemill.operators.alignment import Due, borders, due_in_turn
from slicemill.operators.join import probe
from slicemill.operators.join import probe as placing
from slicemill.operators.join.answers import Answer, Answers, Collected, UnmatchedTracker
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    FOREVER,
    HASH,
    TIME,
    Block,
    QueryBits,
    column_numbers,
    group_by_hash,
    reach_of,
)
from slicemill.operators.join.conditions import RowPreparer, Selections, key_types, reads_row_numbers
from slicemill.operators.join.heavy_keys import NO_WORK, KeyWork, broadcast_mask, key_work, local_mask
from slicemill.operators.join.pairs import FoundPairs, Pairs, Probing
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.join.spec import InOrder, JoinMember, SharedJoin
from slicemill.operators.join.state import JoinSide, JoinState, RowTakeover
from slicemill.operators.step import SharedStep, StatefulStep, StepContext, StepResult
from slicemill.operators.subtask import WHOLE, HeavyKey, Subtask
from slicemill.shedding.accuracy import AccuracyReport, AccuracySums
from slicemill.shedding.load import ComparisonCounter, Comparisons, SheddingDecision
from slicemill.time import BEGINNING
from slicemill.types import Schema


def shared_join(operator: SharedJoin, context: StepContext) -> StatefulStep | SharedStep:
    state = context.state if isinstance(context.state, JoinState) else JoinState()
    is_link = _is_link(context)
    # The next join of the chain runs in the same subtask and reads all results of this join.
    subtask = WHOLE if is_link else context.subtask
    join = JoinKernel(operator, context.schemas, state, context.newcomers, context.seq_bits, subtask)
    limited = [member.name for member in operator.members if member.limit is not None]
    step = SharedJoinStep(join, limited, in_turn=not is_link)
    return step if context.graph.has_parts(context.node.id) else JoinStep(step)


def _is_link(context: StepContext) -> bool:
    """Return True if this join belongs to a chain of joins.

    A join of three or more streams may run as a chain of two-way joins, whose order can differ from FROM.
    Rows of equal timestamps are therefore joined together when the timestamp is complete. `InOrder` then
    restores the order of FROM.
    """
    graph, own = context.graph, context.node.id
    chained = (node.id for node in graph if isinstance(node.operator, InOrder))
    return any(own in graph.ancestors(node_id) for node_id in chained)


class SharedJoinStep:
    """Execution of a shared join, with one result per query.

    With `in_turn`, rows are read in (timestamp, input) order. Otherwise all rows of a timestamp are read
    together when the timestamp is complete.
    """

    def __init__(self, join: JoinKernel, counted: Sequence[str] = (), *, in_turn: bool = True) -> None:
        self._join = join
        self._in_turn = in_turn
        self._counted = counted  # queries with load shedding
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> JoinState:
        return self._join.state

    @property
    def compared(self) -> Comparisons:
        return self._join.compared.found()

    @property
    def key_work(self) -> KeyWork:
        return self._join.key_work

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        self._join.set_heavy(heavy)

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:  # noqa: ARG002
        """Return the shedding reports of queries by name."""
        return {name: self.state.sheds[name] for name in self._counted if name in self.state.sheds}

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:  # noqa: ARG002
        """Set the part of the windows that the next run probes."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self._join.shorten({name: found.reach for name, found in dropping.items() if found.reach < 1})

    def _count(self, tables: Sequence[pa.Table], until: int) -> None:
        """Estimate shed pairs.

        Skipped pairs are assumed to match as often as compared pairs.
        """
        rows = sum(table.num_rows for table in tables) - self._join.foreign
        for name in self._counted if rows else ():
            report = self.state.sheds.setdefault(name, AccuracyReport())
            report.arrived += rows
            latest = max(int(pc.max(table.column(TS)).as_py()) for table in tables if table.num_rows)
            report.add(min(latest, until), AccuracySums(self._shares.get(name, 1.0) * rows, rows))

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        until = min(complete)
        known = self._join.known(tables, complete) if self._in_turn else [until, until]
        below = borders(known) if self._in_turn else known
        answers = self._join.run(tables, below, until, min(known))
        self._count(tables, until)
        return [answer if isinstance(answer, SlicemillError) else (answer, until) for answer in answers]

    def due(self) -> Due | None:
        firsts = self._join.next_times()
        if self._in_turn:
            return _first(due_in_turn(firsts), self._join.due_unmatched())
        return min((ts + 1 for ts in firsts if ts is not None), default=None)


def _first(waiting: tuple[int, ...] | None, unmatched: tuple[int, ...] | None) -> Due | None:
    """Return the earlier due time, of waiting rows and of unmatched rows."""
    if waiting is None or unmatched is None:
        return waiting or unmatched
    return min(waiting, unmatched, key=max)


class JoinStep:
    """Execution of a join that serves a single query."""

    def __init__(self, shared: SharedJoinStep) -> None:
        self._shared = shared

    @property
    def state(self) -> JoinState:
        return self._shared.state

    @property
    def compared(self) -> Comparisons:
        return self._shared.compared

    @property
    def key_work(self) -> KeyWork:
        return self._shared.key_work

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        self._shared.set_heavy(heavy)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:
        return self._shared.sheds(node_id)

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:
        self._shared.set_load(node_id, dropping)

    def due(self) -> Due | None:
        return self._shared.due()


# Vectorized window join of two streams, shared by all queries of a plan.
#
# A run consumes the rows that no later input can precede. These rows probe the slices of the other side and
# each other. They are then stored in slices. Results have the order of the row-by-row reference: by the
# newer row (timestamp, input, arrival), then by the older row, oldest first.
#
# If every subtask of the task reads all rows, each subtask stores only one stripe, a hash range of sequence
# numbers. The pair is found by the subtask that stores the older row, and by no other subtask (PSP-D, S33).
# New rows of all stripes probe. Among the new rows, a probing row matches only rows of the subtask's own
# stripe.
#
# A query that is added later gets only pairs whose rows have both arrived since the query started. If
# another query has stored rows that the new query would also have stored, the new query uses them (S23).


PAIRS_PER_BLOCK = 1 << 19
_SAMPLED = 1 << 12  # new rows of a side per run for which matching queries are counted
SIDES = (0, 1)


@dataclass(frozen=True, slots=True)
class _ProbeTarget:
    """Block that new rows probe.

    `starts` and `ends` are the candidates of each new row.
    """

    side: int
    block: Block
    live: NDArray[np.uint64]
    starts: Int32s
    ends: Int32s


class JoinKernel:
    """Two-way window join of all queries of a plan, with its state."""

    def __init__(
        self,
        operator: SharedJoin,
        schemas: Sequence[Schema],
        state: JoinState,
        newcomers: Covers | None = None,
        seq_bits: int = SEQ_BITS,
        subtask: Subtask = WHOLE,
    ) -> None:
        """Build the join. `newcomers` are queries that start empty.

        They start empty even if a query of the same name and definition ran before.
        """
        self.state = state
        self._subtask = subtask
        self._heavy: tuple[HeavyKey, ...] = ()
        self._measures_keys = subtask.count > 1 and not subtask.tied and bool(operator.keys[0])
        self.key_work = NO_WORK  # rows and pairs by key in the last run
        self.foreign = 0  # rows of the last run that another subtask counts
        # If stored rows have sequence numbers, new rows need them too, because the order of results may
        # depend on the numbers.
        self._asked = [
            subtask.tied
            or reads_row_numbers(operator, side)
            or any(side in member.kind.judged for member in operator.members)
            or state.sides[side].has_numbers()
            for side in SIDES
        ]
        self._seq_bits = seq_bits
        self._members = operator.members
        self._schemas = schemas
        self._deadlines = bool(operator.deadlines)
        self._key_types = key_types(operator)
        new = {name: by for name, by in (newcomers or {}).items() if name in self._names()}
        known, before = state.query_bits, state.query_bits.without(new)
        state.query_bits = before.assign_to(operator.members)
        self._entries = [RowPreparer(operator, side, schemas[side], state.query_bits) for side in SIDES]
        self._unmatched = UnmatchedTracker(operator.members, schemas, state.query_bits, seq_bits)
        self._sides = self._make_sides()
        self._reaches = [side.reach for side in self._sides]
        self.compared = ComparisonCounter(len(SIDES))  # comparisons of the last run
        # Errors of selections on stored rows, which the next run reports.
        self._problems: dict[str, ExpressionError] = {}
        if known.members and before != state.query_bits:
            for number, side in enumerate(self._sides):
                side.change(state.query_bits.same_queries(before), self._served(new, number, known))
            state.measures.begin_anew()
        self._answers = Answers(operator.members, schemas, state.query_bits, self._ties, self._unmatched)

    def _make_sides(self) -> list[JoinSide]:
        state = self.state
        return [
            JoinSide(
                state.sides[side],
                state.query_bits,
                side,
                self._entries[side].schema,
                state.measures.writing,
                self._asked[side],
                self._unmatched.tracks_side(side),
            )
            for side in SIDES
        ]

    @property
    def _tied(self) -> bool:
        """Return True if other subtasks find pairs of the same new row."""
        return self._subtask.tied or bool(self._heavy)

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None:
        """Set the heavy keys, whose rows other subtasks read too.

        Valid from the next run on.
        """
        self._heavy = heavy
        if self._tied and not all(self._asked):
            self._asked = [True for _ in SIDES]
            self._sides = self._make_sides()

    def shorten(self, shares: Mapping[str, float]) -> None:
        """Probe only the newest part of these queries' windows (S55).

        Valid from the next run on. Stored rows are not evicted. Other queries use these rows, and so do the
        shortened queries after the overload.
        """
        self._reaches = [
            reach_of(self.state.query_bits, side, shares) if shares else self._sides[side].reach
            for side in SIDES
        ]

    def _names(self) -> set[str]:
        return {member.name for member in self._members}

    def _served(self, newcomers: Covers, side: int, known: QueryBits) -> list[RowTakeover]:
        """Return the new queries that take over stored rows of another query.

        The other query may have been removed in the meantime.
        """
        served = []
        for name, by in newcomers.items():
            other = known.members.get(by[side] or "")
            if other is None:
                continue
            member = self.state.query_bits.members[name]
            if member.selections[side] == other.selections[side]:
                member = replace(member, selections=(None, None))
            chosen = Selections([member], side, self._schemas[side], self.state.query_bits)
            served.append(
                RowTakeover(name, known.mask([other.name]), partial(_holds, chosen, self._problems))
            )
        return served

    def next_times(self) -> list[int | None]:
        """Return the timestamp of the first waiting row of each side."""
        return [side.next_ts() for side in self._sides]

    def known(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> list[int]:
        """Return each side's watermark, or its last timestamp if later."""
        lasts = (
            side.last_ts() if not table.num_rows else int(table.column("_ts")[-1].as_py())
            for side, table in zip(self._sides, tables, strict=True)
        )
        return [told if ts is None else max(told, ts) for told, ts in zip(complete, lasts, strict=True)]

    def due_unmatched(self) -> tuple[int, ...] | None:
        """Return the watermarks that are needed to emit the next unmatched row.

        None if no row is unmatched.
        """
        due = self._unmatched.due(self._sides) if self._unmatched else None
        if due is None:
            return None
        # A waiting row proves that its side has reached the row's time.
        lasts = (side.last_ts() for side in self._sides)
        return tuple(BEGINNING if last is not None and last >= due else due for last in lasts)

    def run(
        self, tables: Sequence[pa.Table], below: Sequence[int], until: int, known: int | None = None
    ) -> list[Answer]:
        """Join new rows, and return one answer for each query.

        Rows of each side are in time order. A side consumes its rows with a timestamp less than its entry in
        `below`. `until` is the watermark of both sides. Unmatched rows are emitted up to `known`, which may
        be later than `until`.
        """
        errors, self._problems = self._problems, {}
        self.compared.begin_anew()
        self.foreign = 0
        for entry, kept, table in zip(self._entries, self._sides, tables, strict=True):
            if table.num_rows:
                numbers = kept.numbers_for(column_numbers(table, "_ts")) if kept.numbered else None
                prepared, lone = entry.prepare(table, numbers, errors)
                kept.store_null_keys(lone)
                self.foreign += self._foreign(prepared)
                kept.arrive(prepared)
        passed = [self._moments(side, below[side]) for side in SIDES]
        new = self._grouped([side.ready(ts) for side, ts in zip(self._sides, below, strict=True)], passed)
        collected: Collected = {}
        for pairs in self._pairs(new):
            self._answers.add(pairs, collected, errors)
        told = self._told(new, until if known is None else known)
        for kept, moments in zip(self._sides, passed, strict=True):
            kept.count_consumed(moments)
        # At the end of time no row follows, so no row has to be stored.
        if until < FOREVER:
            self._measure(new, until)
            for kept, rows in zip(self._sides, new, strict=True):
                kept.add(rows.stored, until)
        answers = self._answers.all_of(collected, errors)
        if self._tied:
            return answers
        return [
            answer if isinstance(answer, ExpressionError) else self._numbered(member, answer, told)
            for member, answer in zip(self._members, answers, strict=True)
        ]

    def _told(self, new: Sequence[Probing], known: int) -> dict[str, pa.Table]:
        """Return by query the rows that can no longer be matched."""
        blocks = [rows.block for rows in new]
        found = {
            member.name: self._unmatched.told(member, self._sides, blocks, known)
            for member in self._members
            if member.kind.outer_inputs
        }
        return {name: table for name, table in found.items() if table is not None}

    def _numbered(self, member: JoinMember, pairs: pa.Table, told: Mapping[str, pa.Table]) -> pa.Table:
        whole = pairs
        if member.kind is not JoinKind.INNER:
            whole = self._unmatched.with_pairs(told.get(member.name), pairs)
        return fan_out(whole, self._unmatched.result_bits(member))

    def _ties(self, pairs: Pairs) -> dict[str, pa.Array]:
        """Return the columns that order a row's pairs across subtasks.

        Pairs of one new row are ordered by their older rows. If low bits of the new row's number were
        dropped, the whole number is the first of these columns.
        """
        if not self._tied:
            return {}
        bits = rank_bits(self._seq_bits)
        lost = bits == self._seq_bits
        ties = [pairs.causes()] if lost else []
        ties += [pairs.older(TIME), pairs.older(BLOCK_SEQ)]
        return {tie_name(index, fan_out_bits(bits) - bits): tie for index, tie in enumerate(ties)}

    def _measure(self, new: Sequence[Probing], until: int) -> None:
        """Update statistics, and plan new cuts if enough rows have arrived."""
        measures = self.state.measures
        begins = [int(rows.block.times.min()) for rows in new if rows.block.rows]
        if not begins:
            return
        elapsed_s = measures.time_passes(min(begins), until)
        for kept, seen, rows in zip(self._sides, measures.sides, new, strict=True):
            window_s = kept.reach.longest_s
            if window_s is not None and elapsed_s > 0:
                held = sum(stored.rows for stored in kept.state.slices)
                seen.time_passes(held, rows.stored.rows, elapsed_s, window_s)
                # Rows are ordered by hash, so the first rows are a random sample.
                seen.sample(*kept.count_by_query(rows.stored, _SAMPLED))
        if measures.is_due():
            for side, kept in enumerate(self._sides):
                cuts = measures.cuts(side, kept.reach)
                kept.state.cuts_us = None if cuts is None else tuple(round(c * 1_000_000) for c in cuts.used)

    # -- finding pairs ---------------------------------------------------------------------------------

    def _moments(self, side: int, below: int) -> Int64s:
        """Return the timestamps of the stream's rows that this run consumes.

        Empty if no window counts rows.
        """
        moments = self._sides[side].state.moments
        return moments if below == FOREVER else moments[: np.searchsorted(moments, below)]

    def _grouped(self, ready: Sequence[pa.Table], passed: Sequence[Int64s]) -> list[Probing]:
        times = [column_numbers(table, BLOCK_TS) for table in ready]
        new: list[Probing] = []
        for side, table in zip(SIDES, ready, strict=True):
            # At equal timestamps rows of input 0 precede rows of input 1.
            ranks = placing.count_before(times[side], times[1 - side], side) + np.arange(len(times[side]))
            met = placing.count_before(times[side], passed[1 - side], side)
            seen = self._sides[1 - side].state.seen + met
            names = [TIME if name == BLOCK_TS else name for name in table.column_names]
            kept = [
                name for name in names if name != BLOCK_ARRIVAL and (name != BLOCK_SEQ or self._asked[side])
            ]
            inside, words = table.rename_columns(names).select(kept), self.state.query_bits.words
            block, order = group_by_hash(inside, words)
            if self._unmatched.tracks_side(side):
                block = replace(block, pending=block.words & self._unmatched.judged[side])
            arrivals, seqs = column_numbers(table, BLOCK_ARRIVAL), column_numbers(table, BLOCK_SEQ)
            stored = block
            if self._subtask.by_time or self._heavy:
                hashes = column_numbers(table, HASH)
                mine = local_mask(self._subtask, self._heavy, hashes, times[side], seqs)
                if not mine.all():
                    stored, _ = group_by_hash(inside.filter(pa.array(mine)).combine_chunks(), words)
            caused = rank_seqs(seqs, side, self._seq_bits)
            new.append(
                Probing(
                    block,
                    stored,
                    seqs[order],
                    caused[order],
                    arrivals[order],
                    ranks[order].astype(np.int32),
                    seen[order],
                )
            )
        return new

    def _foreign(self, prepared: pa.Table) -> int:
        """Count arriving rows of heavy keys with another home subtask."""
        away = [key for key in self._heavy if key.home != self._subtask.number]
        if not away:
            return 0
        found = broadcast_mask(away, column_numbers(prepared, HASH), column_numbers(prepared, BLOCK_TS))
        return int(np.count_nonzero(found))

    def _work_by_key(self, targets: Sequence[_ProbeTarget], new: Sequence[Probing]) -> KeyWork:
        pairs = [np.zeros(rows.block.rows, np.int64) for rows in new]
        for target in targets:
            pairs[target.side] += target.ends - target.starts
        return key_work([(rows.block.hashes, own) for rows, own in zip(new, pairs, strict=True)])

    def _targets(self, new: Sequence[Probing]) -> list[_ProbeTarget]:
        targets: list[_ProbeTarget] = []
        for side in SIDES:
            rows, other, reach = new[side].block, self._sides[1 - side], self._reaches[1 - side]
            if not rows.rows:
                continue
            for block, live, earliest, latest in self._candidate_blocks(new, side):
                starts, ends = (np.empty(rows.rows, np.int32) for _ in range(2))
                found = probe.find_spans(
                    rows.hashes, rows.times, new[side].seen, reach.longest_us, reach.most_rows,
                    block.hashes, block.first, block.times, other.numbers(block),
                    latest, earliest, side, starts, ends,
                )  # fmt: skip
                self._count_compared(1 - side, rows.times, earliest, latest, found)
                if found:
                    targets.append(_ProbeTarget(side, block, live, starts, ends))
        return targets

    def _count_compared(self, side: int, probes: Int64s, earliest: int, latest: int, count: int) -> None:
        """Count comparisons by age, as a share of the longest window."""
        longest = self._sides[side].reach.longest_us
        # Rows are ordered by hash, so the middle row is a random probe.
        now = int(probes[len(probes) // 2])
        ages = (0, 0) if longest in (-1, FOREVER) else (now - latest, now - earliest)
        self.compared.add(side, ages[0] / max(longest, 1), ages[1] / max(longest, 1), count)

    def _candidate_blocks(
        self, new: Sequence[Probing], side: int
    ) -> Iterator[tuple[Block, NDArray[np.uint64], int, int]]:
        """Yield the blocks that new rows may match, oldest first.

        Each result is (block, mask of its queries, earliest time, latest time).
        """
        other, rows = self._sides[1 - side], new[1 - side].stored
        for stored, block in other.blocks(int(new[side].block.times.min())):
            yield block, stored.live, stored.earliest, stored.latest
        if rows.rows:
            yield rows, other.everybody, int(rows.times.min()), int(rows.times.max())

    def _pairs(self, new: Sequence[Probing]) -> Iterator[Pairs]:
        """Yield pairs in batches of bounded size, ordered by the newer row."""
        targets = self._targets(new)
        if self._measures_keys:
            self.key_work = self._work_by_key(targets, new)
        total = new[0].block.rows + new[1].block.rows
        for first, end in _borders(targets, new, total):
            pairs = self._placed(
                [self._found(target, new, first, end) for target in targets], new, first, end
            )
            if not len(pairs):
                continue
            if self._key_types:
                pairs.compare_keys(self._key_types)
            if self._deadlines:
                pairs.keep_deadlines()
            for side in SIDES:
                for expiry, mask in self._sides[side].expiry.masks.items():
                    pairs.keep_unexpired(side, expiry, mask)
            yield pairs

    def _found(
        self, target: _ProbeTarget, new: Sequence[Probing], first: int, end: int
    ) -> tuple[FoundPairs, NDArray[np.uint64]]:
        """Return the pairs with rows of one block, and their masks.

        `_placed` sets the positions of the pairs in the result.
        """
        probing, other = new[target.side], self._sides[1 - target.side]
        inside = (probing.ranks >= first) & (probing.ranks < end)
        most = int((target.ends - target.starts)[inside].sum())
        probes, rows = np.empty(most, np.int32), np.empty(most, np.int32)
        wanted = np.empty((most, self.state.query_bits.words), np.uint64)
        reach = self._reaches[1 - target.side]
        block, measures = target.block, self.state.measures
        with measures.probing.doing(most):
            count = probe.find_pairs(
                target.starts, target.ends, probing.ranks, first, end,
                probing.block.times, probing.seen, probing.block.words,
                block.times, other.numbers(block), block.words, target.live,
                reach.ends_us, reach.bits_us, reach.ends_rows, reach.bits_rows, probes, rows, wanted,
            )  # fmt: skip
        measures.sides[1 - target.side].compared += most
        indices = np.empty(count, np.int32)
        return FoundPairs(target.side, block, probes[:count], rows[:count], indices), wanted[:count]

    def _placed(
        self, parts: list[tuple[FoundPairs, NDArray[np.uint64]]], new: Sequence[Probing], first: int, end: int
    ) -> Pairs:
        """Order pairs by the rank of the new row.

        Pairs of one new row keep the order in which they were found, oldest slice first.
        """
        counts = np.zeros(end - first, np.int32)
        for found, _ in parts:
            placing.count_by_rank(found.probes, new[found.side].ranks, first, counts)
        begins = np.cumsum(counts, dtype=np.int32) - counts
        wanted = np.empty((int(counts.sum()), self.state.query_bits.words), np.uint64)
        for found, bits in parts:
            placing.position_by_rank(found.probes, new[found.side].ranks, first, begins, found.indices)
            placing.scatter_words(bits, found.indices, wanted)
        return Pairs(new, [found for found, _ in parts], wanted)


def _holds(selections: Selections, errors: dict[str, ExpressionError], table: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(selections.masks(table, errors).any(axis=1))


def _borders(
    targets: Sequence[_ProbeTarget], new: Sequence[Probing], total: int
) -> Iterator[tuple[int, int]]:
    """Split ranks into ranges with a bounded number of pairs."""
    counts = np.zeros(total, np.int64)
    for target in targets:
        counts[new[target.side].ranks] += target.ends - target.starts
    reached = np.cumsum(counts)
    first = 0
    while first < total:
        before = int(reached[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + PAIRS_PER_BLOCK, side="right")))
        yield first, end
        first = end

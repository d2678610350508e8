"""Vectorized window join of three or more streams, for several queries.

Each stream has one state, which all queries share. A new row of a stream probes the states of the other
streams, one after the other. No intermediate results are stored. Each partial result has a mask of the
queries that may still emit it. The masks of rows, the ages of rows and the conditions clear bits of this
mask. A partial result with an empty mask is dropped at once (S48). Queries share probes as long as their
probing orders agree.

    multiway_spec      specification, equal expressions, and the keys by which a state is searched
    multiway_orders    the order in which rows of each stream probe the other states, and its statistics
    multiway_state     state between runs, preparation of arriving rows, and rescale
    multiway_probe     partial results, residual conditions, and the results of each query
    multiway           execution of the join
    multiway_form      choice by cost between this operator and a tree of two-way joins
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.arrow_schema import TS
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.errors import SlicemillError
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int32s
from slicemill.operators.alignment import Due
from slicemill.operators.join import answers, probe
from slicemill.operators.join.answers import Answer
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    DATA,
    FOREVER,
    TIME,
    Block,
    QueryBits,
    WindowReach,
    column_numbers,
    ends_of,
    group_by_hash,
    reach_of,
)
from slicemill.operators.join.conditions import Selections
from slicemill.operators.join.multiway_orders import (
    ProbingNode,
    StateProbe,
    input_watermarks,
    lines_of,
    probing_tree,
    split_ready,
)
from slicemill.operators.join.multiway_probe import (
    BY_TIME,
    Indexes,
    KeyIndex,
    NewRows,
    PartialResults,
    PartialTests,
    ProbeTarget,
    ResidualCondition,
    ResultBuilder,
    gather_times,
    new_rows,
)
from slicemill.operators.join.multiway_spec import KeyTable, Link, MultiJoinMember, SharedMultiJoin
from slicemill.operators.join.multiway_state import (
    MultiJoinState,
    StreamRowPreparer,
    hash_column,
    key_columns,
    views,
)
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.state import JoinSide, RowTakeover, SideState
from slicemill.operators.step import SharedStep, StatefulStep, StepContext, StepResult, bits_of
from slicemill.shedding.accuracy import AccuracyReport, AccuracySums
from slicemill.shedding.load import ComparisonCounter, Comparisons, SheddingDecision
from slicemill.storage.state_size import state_bytes
from slicemill.time import BEGINNING
from slicemill.types import TIMESTAMP, Schema

PARTIALS_PER_BLOCK = 1 << 19
# A partial result stores the position and the time of a row of each input.
_BYTES_PER_PARTIAL = 16
_NO_NUMBERS = np.zeros(0, np.int64)
_TIMESTAMP = arrow_type(TIMESTAMP)


class MultiJoinKernel:
    """Multi-way joins of a plan, with their state."""

    def __init__(
        self,
        operator: SharedMultiJoin,
        schemas: Sequence[Schema],
        state: MultiJoinState,
        newcomers: Covers | None = None,
        seq_bits: Mapping[str, int] | None = None,
        *,
        tied: bool = False,
    ) -> None:
        """Build the joins. `newcomers` are queries that start empty.

        They start empty even if a query of the same name and definition ran before. `seq_bits` are the bits
        of the sequence numbers, by query. With `tied`, other subtasks find results of the same rows.
        """
        self.state = state
        self._rows_found: dict[str, int] = {}  # number of result rows of this run, by query
        self.members = operator.members
        self._names = operator.inputs
        self._schemas = schemas
        new = {name: by for name, by in (newcomers or {}).items() if name in {m.name for m in self.members}}
        known, before = state.query_bits, state.query_bits.without(new)
        state.query_bits = before.assign_to(operator.members)
        members = {member.name: member for member in operator.members}
        numbers = {name: number for number, name in enumerate(operator.inputs)}
        # Inputs of each query, in the order of FROM.
        self.joined = {member.name: [numbers[name] for name in member.inputs] for member in operator.members}
        self._keys = KeyTable(operator.inputs, operator.members)
        query_bits = [QueryBits(state.query_bits.bits, views(members, name)) for name in operator.inputs]
        self._entries = [
            StreamRowPreparer(
                name,
                schemas[number],
                self._keys.keys[number],
                [self._keys.queries_requiring(number, key) for key in range(len(self._keys.keys[number]))],
                members,
                query_bits[number],
            )
            for number, name in enumerate(operator.inputs)
        ]
        state.sides = {name: state.sides.get(name, SideState()) for name in operator.inputs}
        writing = state.measures.writing
        self._sides = [
            JoinSide(
                state.sides[name], query_bits[number], 0, self._entries[number].schema, writing, asked=True
            )
            for number, name in enumerate(operator.inputs)
        ]
        self._lines = lines_of(
            operator.members,
            self.joined,
            state.query_bits,
            state.late,
            lambda number, late: JoinSide(
                late, query_bits[number], 0, self._entries[number].schema, asked=True
            ),
        )
        self._query_bits = query_bits
        self._problems: dict[str, ExpressionError] = {}  # errors of selections on stored rows
        if known.members and before != state.query_bits:
            stayed = set(state.query_bits.same_queries(before))
            for number, side in enumerate(self._sides):
                there = [name for name in query_bits[number].members if name in stayed]
                side.change(there, self._served(new, number, known))
                for line in self._lines:
                    if number in line.late:
                        line.late[number].change(there)
            state.measures.begin_anew()
        self._residuals = PartialTests(operator.members, numbers, schemas, state.query_bits)
        self._results = {
            member.name: ResultBuilder(
                member,
                self.joined[member.name],
                schemas,
                (seq_bits or {}).get(member.name, SEQ_BITS),
                tied=tied,
            )
            for member in operator.members
        }
        self._indexes = Indexes()
        self.compared = ComparisonCounter(len(self._names))  # comparisons of the last run
        self.shorten({})
        self.plan_orders()

    @property
    def index_bytes(self) -> int:
        """Return the memory of indexes, which the state excludes."""
        return self._indexes.bytes

    def shorten(self, shares: Mapping[str, float]) -> None:
        """Probe only the newest part of these queries' windows (S55).

        Valid from the next run on. Stored rows are not evicted. Other queries use these rows, and so do the
        shortened queries after the overload.
        """
        self._reaches = [
            reach_of(query_bits, 0, shares) if shares else side.reach
            for query_bits, side in zip(self._query_bits, self._sides, strict=True)
        ]

    def _served(self, newcomers: Covers, number: int, known: QueryBits) -> list[RowTakeover]:
        """Return the new queries that take over stored rows of another query."""
        served = []
        members = cast(Mapping[str, MultiJoinMember], self.state.query_bits.members)
        for name, by in newcomers.items():
            inputs = members[name].inputs
            if self._names[number] not in inputs:
                continue
            side = inputs.index(self._names[number])
            other = known.members.get((by[side] if side < len(by) else None) or "")
            if other is None:
                continue
            there = other.side_of(members[name], side)
            assert there is not None, "it serves this side"
            own = self._query_bits[number].members[name]
            if own.selections[0] == other.selections[there]:
                own = JoinMember(name, own.windows, (None,), None, ())
            chosen = Selections([own], 0, self._schemas[number], self._query_bits[number])
            holds = partial(_holds, chosen, self._problems)
            served.append(RowTakeover(name, known.mask([other.name]), holds))
        return served

    # -- probing orders --------------------------------------------------------------------------------

    def plan_orders(self) -> None:
        """Choose the probing orders from the current statistics."""
        self.orders: list[ProbingNode] = [
            probing_tree(source, self.joined, self._keys, self._expected)
            for source in range(len(self._names))
        ]
        self._masks: dict[int, NDArray[np.uint64]] = {}
        self._tests: dict[int, list[ResidualCondition]] = {}
        self._at_once: dict[int, NDArray[np.uint64]] = {}
        for root in self.orders:
            self._prepare(root)

    def _prepare(self, node: ProbingNode) -> None:
        """Compute the query mask and the conditions of each branch."""
        for look, further in node.next.items():
            names = further.members()
            self._masks[id(further)] = self.state.query_bits.mask(names)
            self._tests[id(further)] = self._residuals.at(node.bound, look.target, names)
            at_once = [name for name in names if self._is_before(name, look.target, node.bound[0])]
            self._at_once[id(further)] = self.state.query_bits.mask(at_once)
            self._prepare(further)

    def _is_before(self, name: str, target: int, source: int) -> bool:
        """Return True if input `target` precedes input `source` in the query's FROM.

        Of rows with the same time, the row of the last stream in FROM probes for the other rows.
        """
        own = self.joined[name]
        return own.index(target) < own.index(source)

    def _expected(self, look: StateProbe) -> float:
        """Return the expected number of rows that a probe finds.

        The number is measured, or derived from the probe in the opposite direction, or assumed.
        """
        found = self.state.measures.probes.get(look.name)
        if found is not None and found.expected is not None:
            return found.expected
        if look.by is None:
            return float(max(1, self._held(look.target)))
        turned = StateProbe(look.by.of, Link(look.target, look.by.to_key, look.by.of, look.by.of_key))
        other = self.state.measures.probes.get(turned.name)
        if other is not None and other.expected is not None:
            share = other.expected / max(1, self._held(look.by.of))
            return share * max(1, self._held(look.target))
        return 0.1 ** len(look.checks) * (1 + self._held(look.target) / 1_000_000)

    def _held(self, input_: int) -> int:
        return sum(stored.rows for stored in self._sides[input_].state.slices)

    # -- runs ------------------------------------------------------------------------------------------

    def dues(self) -> list[tuple[int, ...]]:
        """Return by line the watermarks that release the next waiting row."""
        firsts = [side.next_ts() for side in self._sides]
        return [due for line in self._lines if (due := line.due(firsts)) is not None]

    def complete(self, name: str, complete: Sequence[int]) -> int:
        """Return the watermark of a query's results."""
        return min(complete[input_] for input_ in self.joined[name])

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> list[Answer]:
        """Join new rows of all inputs. Return one answer for each query.

        The rows of each input are in time order.
        """
        errors, self._problems = self._problems, {}
        self.compared.begin_anew()
        for entry, side, table in zip(self._entries, self._sides, tables, strict=True):
            if table.num_rows:
                side.arrive(entry.prepare(table, errors))
        known = input_watermarks(self._sides, self._lines, complete)
        below = [line.below(known) for line in self._lines]
        blocks: list[Block] = []  # rows to store
        probing: list[Block] = []
        new: dict[int, NewRows] = {}
        for number, side in enumerate(self._sides):
            mine = [(line, at[number]) for line, at in zip(self._lines, below, strict=True) if number in at]
            ready = side.ready(max((at for _, at in mine), default=BEGINNING))
            now, whole = split_ready(ready, number, mine)
            block, new[number] = self._grouped(now)
            probing.append(block)
            blocks.append(block if whole else self._grouped(ready)[0])
        found: dict[str, list[PartialResults]] = {}
        self._rows_found.clear()
        targets = [list(self._targets(number, blocks, probing)) for number in range(len(blocks))]
        for source, block in enumerate(probing):
            if block.rows:
                self._probe_subtree(new_rows(source, block), self.orders[source], targets, [], found, errors)
        results: list[Answer] = []
        for member in self.members:
            if member.name in errors:
                results.append(errors[member.name])
            else:
                results.append(self._results[member.name].made(found.get(member.name, ()), new))
        self._keep(blocks, complete)
        return results

    def _keep(self, blocks: Sequence[Block], complete: Sequence[int]) -> None:
        """Store new rows, and evict rows that no later row can match."""
        measures = self.state.measures
        for number, (name, side, block) in enumerate(zip(self._names, self._sides, blocks, strict=True)):
            joining = (line.complete(complete) for line in self._lines if number in line.inputs)
            until = min(joining, default=FOREVER)
            if until == FOREVER:
                continue
            measures.reached_us = max(measures.reached_us, until)
            if block.rows:
                measures.arrived(name, block.rows, int(block.times.min()))
            side.add(block, until)
        self._indexes.forget()
        if measures.is_due():
            self.plan_orders()

    def _grouped(self, table: pa.Table) -> tuple[Block, NewRows]:
        names = [TIME if name == BLOCK_TS else name for name in table.column_names]
        kept = [name for name in names if name != BLOCK_ARRIVAL]
        block, order = group_by_hash(table.rename_columns(names).select(kept), self.state.query_bits.words)
        seqs, arrivals = (column_numbers(table, name)[order] for name in (BLOCK_SEQ, BLOCK_ARRIVAL))
        return block, NewRows(column_numbers(table, BLOCK_TS), order, seqs, arrivals)

    def _targets(
        self, number: int, blocks: Sequence[Block], probing: Sequence[Block]
    ) -> Iterator[ProbeTarget]:
        """Yield the blocks of an input to probe, oldest first."""
        side, others = self._sides[number], [b for n, b in enumerate(probing) if n != number and b.rows]
        if not others:
            return
        earliest = min(int(block.times.min()) for block in others)
        for stored, block in side.blocks(earliest):
            yield ProbeTarget(block, stored.live, stored.earliest, stored.latest)
        own = blocks[number]
        if own.rows:
            yield ProbeTarget(own, side.everybody, int(own.times.min()), int(own.times.max()))

    def _probe_subtree(
        self,
        partials: PartialResults,
        node: ProbingNode,
        targets: Sequence[Sequence[ProbeTarget]],
        postponed: Sequence[ResidualCondition],
        found: dict[str, list[PartialResults]],
        errors: dict[str, ExpressionError],
    ) -> None:
        """Collect the results that end at a node, and probe further."""
        for name in node.ends:
            own = partials.of(self.state.query_bits.mask([name]))
            if postponed:
                self._residuals.finish(own, name, postponed, errors)
                own = own.of(self.state.query_bits.mask([name]))
            if len(own) and name not in errors:
                found.setdefault(name, []).append(own)
                self._rows_found[name] = self._rows_found.get(name, 0) + len(own)
                if self._rows_found[name] * _BYTES_PER_PARTIAL * len(self._sides) > answers.MOST_BYTES:
                    errors[name] = answers.too_many_rows(self._rows_found[name])
                    del found[name]
        for look, further in node.next.items():
            mask = self._masks[id(further)]
            mine = partials.of(mask)
            at_once = self._at_once[id(further)]
            for grown in self._probe_targets(mine, look, mask, at_once, targets[look.target]):
                met = len(grown)
                self._keep_unexpired(grown, node.bound[0], look.target)
                unknown = self._residuals.test(grown, self._tests[id(further)])
                kept = grown.dropped()
                self.state.measures.record_probe(look.name, 0, met, len(kept))
                if len(kept):
                    self._probe_subtree(kept, further, targets, [*postponed, *unknown], found, errors)

    def _keep_unexpired(self, grown: PartialResults, source: int, target: int) -> None:
        """Clear queries in partial results with an expired row.

        The source's row is the latest row. The stored row must not have expired at the time of the source's
        row, and the source's row must not have expired at the time of the stored row.
        """
        for input_, others in ((target, grown.times), (source, None)):
            for expiry, mask in self._sides[input_].expiry.masks.items():
                ends = ends_of(grown.column(input_, DATA + expiry.column, _TIMESTAMP), expiry)
                met = grown.numbers(target, TIME) if others is None else others
                grown.words[met >= ends] &= ~mask

    # -- probing ---------------------------------------------------------------------------------------

    def _probe_targets(
        self,
        partials: PartialResults,
        look: StateProbe,
        mask: NDArray[np.uint64],
        at_once: NDArray[np.uint64],
        targets: Sequence[ProbeTarget],
    ) -> Iterator[PartialResults]:
        """Yield partial results extended by one row, in batches of bounded size.

        `mask` are the queries that probe. Queries in `at_once` also match rows of the same time.
        """
        self.state.measures.record_probe(look.name, len(partials), 0, 0)
        if not len(partials):
            return
        key = self._key_at(look)
        if look.by is None:
            hashes = np.zeros(len(partials), np.uint64)
        else:
            of = hash_column(look.by.of_key)
            hashes = partials.numbers(look.by.of, of).view(np.uint64)
        at_same_time = int(at_once.any())
        later = mask & ~at_once if at_same_time else np.zeros_like(mask)
        reach = self._reaches[look.target]
        spans: list[tuple[ProbeTarget, KeyIndex, Int32s, Int32s]] = []
        for target in targets:
            index = self._indexes.of(target.block, key)
            starts, ends = (np.empty(len(partials), np.int32) for _ in range(2))
            met = probe.find_spans(
                hashes, partials.times, _NO_NUMBERS, reach.longest_us, -1,
                index.hashes, index.first, index.times, _NO_NUMBERS,
                target.latest, target.earliest, at_same_time, starts, ends,
            )  # fmt: skip
            self._count_compared(look.target, partials, target, met)
            if met:
                spans.append((target, index, starts, ends))
        for first, end in _borders([ends - starts for _, _, starts, ends in spans], len(partials)):
            grown = self._grown(partials, look, mask, later, reach, spans, first, end)
            if len(grown):
                yield grown

    def _count_compared(self, input_: int, partials: PartialResults, target: ProbeTarget, count: int) -> None:
        """Count comparisons by age, as a share of the longest window."""
        longest = self._sides[input_].reach.longest_us
        # Partial results are ordered by hash, so the middle row has a random time.
        now = int(partials.times[len(partials) // 2])
        ages = (0, 0) if longest in (-1, FOREVER) else (now - target.latest, now - target.earliest)
        self.compared.add(input_, ages[0] / max(longest, 1), ages[1] / max(longest, 1), count)

    def _key_at(self, look: StateProbe) -> int:
        """Return the number of the target's index that is searched.

        Without a key, all rows of the target are candidates.
        """
        if look.by is not None:
            return look.by.to_key
        return BY_TIME if self._keys.keys[look.target] else 0

    def _grown(
        self,
        partials: PartialResults,
        look: StateProbe,
        mask: NDArray[np.uint64],
        later: NDArray[np.uint64],
        reach: WindowReach,
        spans: Sequence[tuple[ProbeTarget, KeyIndex, Int32s, Int32s]],
        first: int,
        end: int,
    ) -> PartialResults:
        """Extend a range of partial results by all rows that match.

        Queries in `later` do not match rows of the same time.
        """
        width = self.state.query_bits.words
        parents, rows, words, begins, blocks = [], [], [], [0], []
        ranks = np.zeros(end - first, np.int32)
        times = np.ascontiguousarray(partials.times[first:end])
        probing = np.ascontiguousarray(partials.words[first:end])
        for target, index, starts, ends in spans:
            starts, ends = starts[first:end], ends[first:end]
            most = int((ends - starts).sum())
            probes, met = np.empty(most, np.int32), np.empty(most, np.int32)
            wanted = np.empty((most, width), np.uint64)
            count = probe.find_pairs(
                starts, ends, ranks, 0, 1, times, _NO_NUMBERS, probing,
                index.times, _NO_NUMBERS, index.words, target.live & mask,
                reach.ends_us, reach.bits_us, reach.ends_rows, reach.bits_rows, probes, met, wanted,
            )  # fmt: skip
            if later.any():
                wanted[:count][index.times[met[:count]] == times[probes[:count]]] &= ~later
            parents.append(probes[:count] + np.int32(first))
            rows.append(met[:count] if index.order is None else index.order[met[:count]])
            words.append(wanted[:count])
            begins.append(begins[-1] + count)
            blocks.append(target.block)
        of = np.concatenate(parents) if parents else np.zeros(0, np.int32)
        grown = PartialResults(
            look.target,
            partials,
            of,
            blocks,
            np.array(begins[:-1], np.int64),
            np.concatenate(rows) if rows else of,
            gather_times(partials.times, of),
            np.concatenate(words) if words else np.zeros((0, width), np.uint64),
        )
        return self._drop_mismatches(grown, look)

    def _drop_mismatches(self, grown: PartialResults, look: StateProbe) -> PartialResults:
        """Drop partial results with different keys.

        So far, only the hashes of the key that was looked up are known to be equal.
        """
        agree: NDArray[np.bool_] | None = None
        for link in look.checks:
            mine = grown.numbers(link.to, hash_column(link.to_key))
            same = mine == grown.numbers(link.of, hash_column(link.of_key))
            agree = same if agree is None else agree & same
        if agree is not None and not agree.all():
            grown, agree = grown.kept(agree), None
        for link in (look.by, *look.checks) if look.by is not None else ():
            for (there, kind), (mine_, _) in zip(
                key_columns(link.of_key, self._keys.keys[link.of][link.of_key]),
                key_columns(link.to_key, self._keys.keys[link.to][link.to_key]),
                strict=True,
            ):
                equal = pc.equal(grown.column(link.of, there, kind), grown.column(link.to, mine_, kind))
                same = pc.fill_null(equal, False).to_numpy(zero_copy_only=False).astype(np.bool_)
                if not same.all():
                    grown.words[~same] = 0
        return grown


def _holds(selections: Selections, errors: dict[str, ExpressionError], table: pa.Table) -> NDArray[np.bool_]:
    return np.asarray(selections.masks(table, errors).any(axis=1))


def _borders(counts: Sequence[NDArray[np.int32]], total: int) -> Iterator[tuple[int, int]]:
    """Split partial results into ranges with a bounded number of candidates.

    Each range has at least one partial result.
    """
    if not counts:
        return
    reached = np.cumsum(np.sum(counts, axis=0, dtype=np.int64))
    first = 0
    while first < total:
        before = int(reached[first - 1]) if first else 0
        end = max(first + 1, int(np.searchsorted(reached, before + PARTIALS_PER_BLOCK, side="right")))
        yield first, end
        first = end


# Execution steps of multi-way window joins.


def shared_multi_join(operator: SharedMultiJoin, context: StepContext) -> StatefulStep | SharedStep:
    state = context.state if isinstance(context.state, MultiJoinState) else MultiJoinState()
    sources = dict(zip(operator.inputs, context.node.inputs, strict=True))
    bits = {
        member.name: bits_of([sources[name] for name in member.inputs], context.graph, context.catalog)
        for member in operator.members
    }
    kernel = MultiJoinKernel(
        operator, context.schemas, state, context.newcomers, bits, tied=context.subtask.tied
    )
    step = SharedMultiJoinStep(kernel)
    return step if context.graph.has_parts(context.node.id) else MultiJoinStep(step)


class SharedMultiJoinStep:
    """Execution of a shared multi-way join, with one result per query."""

    def __init__(self, join: MultiJoinKernel) -> None:
        self._join = join
        self._limited = [member for member in join.members if member.limit is not None]
        self._shares: Mapping[str, float] = {}

    @property
    def state(self) -> MultiJoinState:
        return self._join.state

    @property
    def compared(self) -> Comparisons:
        return self._join.compared.found()

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:  # noqa: ARG002
        """Return the shedding reports of queries by name."""
        known = self.state.sheds
        return {member.name: known[member.name] for member in self._limited if member.name in known}

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:  # noqa: ARG002
        """Set the part of the windows that the next run probes."""
        self._shares = {name: found.share for name, found in dropping.items()}
        self._join.shorten({name: found.reach for name, found in dropping.items() if found.reach < 1})

    def _count(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> None:
        """Estimate shed results.

        Skipped probes are assumed to match as often as executed probes.
        """
        for member in self._limited:
            own = [table for input_ in self._join.joined[member.name] if (table := tables[input_]).num_rows]
            rows = sum(table.num_rows for table in own)
            if rows:
                report = self.state.sheds.setdefault(member.name, AccuracyReport())
                report.arrived += rows
                latest = max(int(pc.max(table.column(TS)).as_py()) for table in own)
                sums = AccuracySums(self._shares.get(member.name, 1.0) * rows, rows)
                report.add(min(latest, self._join.complete(member.name, complete)), sums)

    def bytes_kept(self) -> int:
        return state_bytes({"": self.state}) + self._join.index_bytes

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]:
        answers = self._join.run(tables, complete)
        self._count(tables, complete)
        return [
            answer
            if isinstance(answer, SlicemillError)
            else (answer, self._join.complete(member.name, complete))
            for member, answer in zip(self._join.members, answers, strict=True)
        ]

    def due(self) -> Due | None:
        return self._join.dues() or None


class MultiJoinStep:
    """Execution of a multi-way join that serves a single query."""

    def __init__(self, shared: SharedMultiJoinStep) -> None:
        self._shared = shared

    @property
    def state(self) -> MultiJoinState:
        return self._shared.state

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        (part,) = self._shared.run(tables, complete)
        if isinstance(part, SlicemillError):
            raise part
        return part

    @property
    def compared(self) -> Comparisons:
        return self._shared.compared

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]:
        return self._shared.sheds(node_id)

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:
        self._shared.set_load(node_id, dropping)

    def bytes_kept(self) -> int:
        return self._shared.bytes_kept()

    def due(self) -> Due | None:
        return self._shared.due()

"""Coalescing over time windows with a tuple budget: a compiled `coalesce.rows`.

Tuples pass one by one through the compiled memory, slide by slide. At the end of a slide, the remaining
tuples are merged into runs and the accuracy is computed, both on whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.columns.intervals import Mask, Places
from slicemill.columns.keys import Keys, distinct_keys
from slicemill.columns.order import renumbered
from slicemill.esl.types.schema import Schema
from slicemill.operators.coalesce.accuracy import RunPieces, sums
from slicemill.operators.coalesce.budget_state import BudgetState
from slicemill.operators.coalesce.coalescing import (
    ARRIVAL,
    KEY,
    SELECTED,
    SEQ,
    TIME,
    TS,
    Coalescing,
)
from slicemill.operators.coalesce.shedding import layout as m
from slicemill.operators.coalesce.shedding.arrivals import expire, samples, take
from slicemill.operators.coalesce.shedding.memory import unpacked
from slicemill.operators.coalesce.spec import Coalesce
from slicemill.scalar.columns import compile_vector
from slicemill.scalar.vectors import numbers
from slicemill.shedding.methods import method_of
from slicemill.shedding.report import MemoryReport, few_slides
from slicemill.shedding.shadow import SEED, runs_remembered

_ALWAYS = -(2**62)


class BudgetedByTime(Coalescing):
    """Like `CoalescingByTime`, for the tuples that were not shed."""

    state: BudgetState

    def __init__(
        self, operator: Coalesce, schema: Schema, names: Sequence[str], output: Schema, state: BudgetState
    ) -> None:
        super().__init__(operator, schema, names, state)
        assert operator.budget is not None
        method = method_of(operator.budget.method, operator.budget.threshold, weights=operator.budget.weights)
        threshold = -1 if method.threshold is None else method.threshold
        self._capacity = operator.budget.capacity
        limit = runs_remembered(self._capacity)
        inner = method.split == 0 and method.threshold is None
        self._rule = m.Rule(
            method.blind, inner, method.lost, method.lookahead, threshold, method.seed, SEED, limit
        )
        self._wanted = None if operator.wanted is None else compile_vector(operator.wanted, output)
        # Working state of a run. Between runs, everything is in the state.
        self._memory = m.empty(0, 0)
        self._values = Keys()
        self._now = 0  # end of the current slide
        if state.memory is None:
            state.report = MemoryReport(capacity=self._capacity)

    def _wake(self, coming: int) -> None:
        """Unpack the memory with room for new tuples, within the budget."""
        stored = self.state.memory or m.packed(self._memory)
        room = min(self._capacity, len(stored.tuples) + coming)
        self._memory = unpacked(stored, room, self.state.partitions, self._rule)
        self._values = Keys.restored(**self.state.values)

    def _rest(self) -> None:
        self.state.rest(m.packed(self._memory), self._values)
        self._memory, self._values = m.empty(0, 0), Keys()

    def due(self) -> int | None:
        return self.state.next_end

    def _report(self, new: pa.Table, arrivals: Places, ended: bool) -> pa.Table | None:  # noqa: ARG002
        state = self.state
        missing = max(len(state.keys), 1) - len(state.partitions)
        state.partitions = np.concatenate([state.partitions, m.new_partitions(max(missing, 0))])
        self._wake(len(new))
        columns = [new.column(name) for name in self._attributes]
        codes = self._values.number(distinct_keys(columns, len(new)), columns).astype(np.int64)
        keys = numbers(new.column(KEY).combine_chunks()).astype(np.int64)
        chosen = new.column(SELECTED).to_numpy().astype(np.int64)
        ts: Places = numbers(new.column(TIME).combine_chunks())
        out, start = [], 0
        while True:
            if state.next_end is None:
                if start == len(ts):
                    break
                state.next_end = (int(ts[start]) // self._slide + 1) * self._slide
            stop = int(np.searchsorted(ts, state.next_end, "left"))
            tuples = [column[start:stop] for column in (keys, ts, codes, chosen)]
            horizon = self._horizon(state.next_end)
            take(self._memory, state.partitions, self._rule, self._capacity, horizon, *tuples)
            start = stop
            if start == len(ts) and not ended and state.now < state.next_end:
                break
            out.append(self._closed(state.next_end, ended and start == len(ts)))
        self._count()
        self._rest()
        if not out:
            return None
        table = renumbered(pa.concat_tables(out), state.next_seq)
        state.next_seq += table.num_rows
        return table

    def _horizon(self, end: int) -> int:
        return _ALWAYS if self._extent is None else end - self._extent

    def _closed(self, end: int, last: bool) -> pa.Table:
        """Emit the runs at the end of a slide."""
        state = self.state
        self._expire(end)
        out = self._shown(end)
        goes_on = bool(state.partitions[:, m.ALIVE].any()) and not (self._extent is None and last)
        state.next_end = end + self._slide if goes_on else None
        # Expire now what no later window shows, to make room before the next slide ends.
        self._expire(end + self._slide)
        return out

    def _expire(self, end: int) -> None:
        if self._extent is not None:
            expire(self._memory, self.state.partitions, self._rule, end - self._extent)

    def _count(self) -> None:
        counts, report = self._memory.counts, self.state.report
        report.arrived, report.runs, report.dropped = (
            int(counts[place]) for place in (m.ARRIVED, m.RUNS, m.DROPPED)
        )
        report.sampled = 0.5 ** int(counts[m.HALVINGS])

    # -- reports ---------------------------------------------------------------------------------------

    def _shown(self, now: int) -> pa.Table:
        state, slots, partitions = self.state, self._memory.slots, self.state.partitions
        kept = slots[slots[:, m.PART] != m.NONE]
        open_ = (
            (partitions[:, m.ALIVE] == 1) & (partitions[:, m.CHOSEN] == 1) & (partitions[:, m.SINCE] < now)
        )
        newest = partitions[open_]
        tuples = RunPieces(
            np.append(kept[:, m.RUN], newest[:, m.NEW_RUN]),
            np.append(kept[:, m.PART], np.flatnonzero(open_)),
            np.append(kept[:, m.CODE], newest[:, m.NEW_CODE]),
            np.append(kept[:, m.BEGIN], newest[:, m.SINCE]),
            np.append(kept[:, m.END], np.full(len(newest), now)),
        )
        left = tuples.put_together()
        self._now = now
        self._count()
        state.report.in_window = self._in_window(now)
        told = left.take(self._is_change(left.begins, left.ends, now)) if self._changes else left
        table = self._table(told)
        state.report.add(now, sums(*self._exact(left, tuples, len(kept), now), self._selects))
        return table

    def _exact(self, left: RunPieces, tuples: RunPieces, kept: int, now: int) -> tuple[RunPieces, RunPieces]:
        """Return the exact runs and their remainders, for the sampled runs."""
        counts = self._memory.counts
        shadow = self._memory.shadow[: counts[m.SHADOW]]
        sampled = left.take(_samples(left.runs, int(counts[m.HALVINGS])))
        begins, horizon = shadow[:, m.S_BEGIN].copy(), self._horizon(now)
        first_runs, first = np.unique(sampled.runs, return_index=True)
        place = np.searchsorted(first_runs, shadow[:, m.S_RUN])
        known = (place < len(first_runs)) & (
            np.append(first_runs, -1)[np.minimum(place, len(first_runs))] == shadow[:, m.S_RUN]
        )
        firsts = np.append(sampled.begins[first], horizon)[np.where(known, place, len(first_runs))]
        cut = begins < horizon
        begins[cut] = np.where(shadow[cut, m.S_LOST] < horizon, firsts[cut], horizon)
        newest = tuples.take(np.arange(len(tuples.runs)) >= kept)
        newest = newest.take(_samples(newest.runs, int(counts[m.HALVINGS])))
        goes_on = np.isin(shadow[:, m.S_RUN], newest.runs)
        ends = np.where(goes_on, now, shadow[:, m.S_END])
        alone = newest.take(~np.isin(newest.runs, shadow[:, m.S_RUN]))
        whole = RunPieces(
            np.append(shadow[:, m.S_RUN], alone.runs),
            np.append(shadow[:, m.S_PART], alone.partitions),
            np.append(shadow[:, m.S_CODE], alone.codes),
            np.append(begins, alone.begins),
            np.append(ends, alone.ends),
        )
        return whole, sampled

    def _selects(self, pieces: RunPieces) -> RunPieces:
        if self._wanted is None or not len(pieces.runs):
            return pieces
        selected = self._wanted(self._table(pieces)).fill_null(False)
        return pieces.take(selected.to_numpy())

    def _table(self, pieces: RunPieces) -> pa.Table:
        keys = self.state.keys.values(pieces.partitions) if self._heads else []
        values = self._values.values(pieces.codes)
        times = [pa.array(t).cast(pa.timestamp("us", tz="UTC")) for t in (pieces.begins, pieces.ends)]
        period = pa.StructArray.from_arrays(times, names=["begin", "end"])
        # The watermark triggers these rows, so they have no arrival time of a tuple.
        system = [pa.array(np.full(len(pieces.runs), number, np.int64)) for number in (self._now, 0, 0)]
        flags = [pa.array(pieces.ends == self._now)] if self._tells_open else []
        columns = [*system, *(keys[place] for place in self._heads), *values, period, *flags]
        return pa.table(columns, names=[TS, SEQ, ARRIVAL, *self._names])

    def _in_window(self, now: int) -> int:
        """Return the number of tuples in windows now, accurate to a slide."""
        arrived, until = self.state.report.arrived, self.state.until
        if self._extent is None:
            return arrived
        until.append((now, arrived))
        few_slides(until)
        while len(until) > 1 and until[1][0] <= now - self._extent:
            until.popleft()
        return arrived - (until[0][1] if until[0][0] <= now - self._extent else 0)


def _samples(runs: Places, halvings: int) -> Mask:
    if not halvings:
        return np.ones(len(runs), np.bool_)
    return np.fromiter((samples(run, halvings, SEED) for run in runs.tolist()), np.bool_, len(runs))

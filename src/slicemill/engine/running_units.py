"""Running units: rows that wait at each unit and its costs, as columns that are updated incrementally.

A decision needs all units that could run. Asking each of a thousand units would take longer than many of
them run, so this table looks at each log once, adds new epochs to all units that read it, and recomputes
only the unit that has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.engine.unit import RunningUnit
from slicemill.engine.work import Watermark
from slicemill.esl.types.catalog import QueryDefinition
from slicemill.metrics.figures import IdealTime
from slicemill.metrics.waiting import Positions, WaitingRows
from slicemill.operators.in_turn import Dues, is_reached
from slicemill.scheduling.batches import Batches
from slicemill.scheduling.ideal_times import Written, ideal_time
from slicemill.shedding.control import Backlog
from slicemill.storage.log import Log
from slicemill.time import BEGINNING, END

_US = 1_000_000
_LEAST_WAIT_S = 1e-6


@dataclass(frozen=True, slots=True)
class Goal:
    """How much a query's results matter, and how late they may be."""

    weight: float = 1.0
    within_s: float = np.inf

    @staticmethod
    def of(query: QueryDefinition) -> Goal:
        slo = query.options.slo
        return Goal(query.options.weight, np.inf if slo is None else slo.bound_s)


@dataclass(frozen=True, slots=True)
class ResultPath:
    """The cost and yield from a unit's input to results, its own and those of downstream units (P2).

    All queries of a unit get their results in the same run, so they count together, with the shared work
    once: Sum, of the ways to rank a shared operator (P26). Max and PDT would leave some for later.
    """

    value: float  # results per row, each as much as it matters
    results: float  # results per row
    queries: int
    overhead_s: float
    per_row_s: float
    within_s: float


class RunningUnits:
    """Units by position; `before` is the table that this one replaces, which knows how long things wait."""

    def __init__(
        self,
        units: Sequence[RunningUnit],
        logs: Mapping[str, Log],
        goals: Mapping[str, Goal],
        now_us: int,
        before: RunningUnits | None = None,
    ) -> None:
        self.units = list(units)
        self.position = {unit.id: position for position, unit in enumerate(units)}
        self._logs = logs
        self._goals = goals
        self.strictest_s = min((goal.within_s for goal in goals.values()), default=np.inf)
        count = len(units)
        read: dict[str, list[int]] = {}
        for position, unit in enumerate(units):
            for log in unit.plan.unit.inputs:
                read.setdefault(log, []).append(position)
        self._readers = {log: np.array(positions, np.intp) for log, positions in read.items()}
        self._heads = {log: logs[log].head for log in read}
        self.writers = {log: unit for unit in units for _, log in unit.plan.unit.outputs}
        # Units that write logs for others or read such logs; those that feed others first.
        self._along_derived = [
            position
            for position, unit in enumerate(units)
            if any(log in self.writers for log in unit.plan.unit.inputs)
            or any(log in read for _, log in unit.plan.unit.outputs)
        ]
        self._written = {log: written for unit in units for log, written in _written(unit)}
        self._epochs = np.zeros(count, np.int64)
        self.rows = np.zeros(count, np.int64)
        self._oldest_us = np.full(count, END)
        self._due = np.full(count, END)  # of units with one input: its watermark
        self._holds = np.zeros(count, np.bool_)
        self._dues: dict[int, Dues] = {}  # of units with several inputs
        self._alive = np.ones(count, np.bool_)
        self._not_ended = {log: np.ones(count, np.bool_) for log in read}
        self._ready_since_us = np.full(count, END)
        self._last_run_us = np.zeros(count, np.int64)
        self._figures = np.zeros((6, count))
        self._own = np.zeros((3, count))
        self._counted_us = now_us
        self.waiting = WaitingRows(count, now_us)
        for position, unit in enumerate(units):
            self._renew(position, unit)
        if before is not None:
            self._take_over(before)

    def _take_over(self, before: RunningUnits) -> None:
        known = {
            here: before.position[name] for name, here in self.position.items() if name in before.position
        }
        for here, there in known.items():
            for name in ("_ready_since_us", "_last_run_us"):
                getattr(self, name)[here] = getattr(before, name)[there]
        self.waiting.take_over(before.waiting, known)

    def unit(self, unit_id: str) -> RunningUnit | None:
        position = self.position.get(unit_id)
        return None if position is None else self.units[position]

    # -- what has changed ------------------------------------------------------------------------------

    def refresh(self, now_us: int) -> None:
        """Note what is new in the logs."""
        before_us, self._counted_us = self._counted_us, now_us
        self.waiting.passed(self.rows, now_us)
        for log, head in self._heads.items():
            if self._logs[log].head == head:
                continue
            epochs = self._logs[log].epochs(after=head)
            readers = self._readers[log]
            self._epochs[readers] += len(epochs)
            self.rows[readers] += sum(epoch.rows for epoch in epochs)
            if log not in self.writers:
                # Rows of a stream came while nobody looked; those of units come when this table is told.
                for epoch in epochs:
                    self.waiting.came(readers, epoch.rows, max(epoch.arrival_us, before_us))
            oldest = min(epoch.arrival_us for epoch in epochs)
            self._oldest_us[readers] = np.minimum(self._oldest_us[readers], oldest)
            self._heads[log] = epochs[-1].number
        self.waiting.now(self.rows)

    def ran(self, unit: RunningUnit, now_us: int) -> None:
        """A unit has run: work out anew what is known of it."""
        position = self.position.get(unit.id)
        if position is None or self.units[position] is not unit:
            return
        self.refresh(now_us)
        self._last_run_us[position] = now_us
        self._ready_since_us[position] = END
        self._renew(position, unit)

    def _renew(self, position: int, unit: RunningUnit) -> None:
        self._count_pending(position, unit)
        dues, inputs = unit.due, unit.plan.unit.inputs
        self._holds[position] = bool(dues) and len(inputs) == 1
        self._due[position] = min((due[inputs[0]] for due in dues), default=END) if len(inputs) == 1 else END
        self._dues.pop(position, None)
        if dues and len(inputs) > 1:
            self._dues[position] = dues
        self._alive[position] = any(log not in unit.failed for _, log in unit.plan.unit.outputs)
        watermarks = unit.input_watermarks()
        for log in unit.plan.unit.inputs:
            self._not_ended[log][position] = watermarks.get(log) != END
        cost = unit.statistics.cost
        self._own[:, position] = cost.overhead, cost.per_row, unit.load_weight
        path = self.path(unit)
        weight = path.value / path.results if path.results else 1.0
        self._figures[:, position] = (
            path.results,
            path.overhead_s,
            path.per_row_s,
            weight,
            max(path.queries, 1),
            path.within_s,
        )

    def _count_pending(self, position: int, unit: RunningUnit) -> None:
        """Of what this table has seen of the logs: what comes later is added when it is seen."""
        epochs = [
            epoch
            for log in unit.plan.unit.inputs
            for epoch in unit.new_epochs(log)
            if epoch.number <= self._heads[log]
        ]
        self._epochs[position] = len(epochs)
        self.rows[position] = sum(epoch.rows for epoch in epochs)
        self._oldest_us[position] = min((epoch.arrival_us for epoch in epochs), default=END)

    # -- what follows ----------------------------------------------------------------------------------

    def ready(self, watermark: Callable[[str], Watermark], now_us: int) -> tuple[Positions, Batches]:
        """The units that could run now, by position, and what waits for them."""
        positions = np.flatnonzero(self._can_run(watermark))
        self._ready_since_us[positions] = np.minimum(self._ready_since_us[positions], now_us)
        oldest = np.minimum(self._oldest_us, self._ready_since_us)[positions]
        wait = np.maximum((now_us - oldest) / _US, _LEAST_WAIT_S)
        results, overhead, per_row, weight, queries, within = self._figures[:, positions]
        rows = np.maximum(self.rows[positions], 1).astype(np.float64)
        return positions, Batches(
            rows=rows,
            pending=rows,
            wait=wait,
            selectivity=results,
            overhead=overhead,
            per_row=per_row,
            ideal_time=overhead + per_row,
            weight=weight,
            outputs=queries,
            slack=within - wait,
            idle=(now_us - self._last_run_us[positions]) / _US,
        )

    def backlog(self, cores: int) -> Backlog:
        """What it takes to do all that waits now."""
        overhead, per_row, weight = self._own
        rows_s = per_row * self.rows
        certain_s = float(overhead[self.rows > 0].sum() + rows_s[weight == 0].sum())
        return Backlog(certain_s / cores, float((weight * rows_s).sum()) / cores)

    def _can_run(self, watermark: Callable[[str], Watermark]) -> npt.NDArray[np.bool_]:
        """Something is new, time has come far enough to release what is held back, or an input has ended.

        Asking for a stream's watermark announces it, so it is asked only of what idle units read. The end of
        an input has to reach each unit once, also one that holds nothing back: others read its logs.
        """
        can = self._epochs > 0
        idle = [unit.run is None and unit.compiled for unit in self.units]
        free = self._alive & np.array(idle, np.bool_)
        if can.all():
            return can & free
        known: dict[str, int] = {}
        least = np.full(len(self.units), END)
        ended = np.zeros(len(self.units), np.bool_)
        for log, readers in self._readers.items():
            if can[readers].all():
                continue
            ts, _, _ = watermark(log)
            known[log] = ts
            least[readers] = np.minimum(least[readers], ts)
            if ts == END:
                ended[readers] |= self._not_ended[log][readers]
        can |= (self._holds & (least >= self._due)) | ended
        for position, dues in self._dues.items():
            can[position] = can[position] or is_reached(dues, known)
        for position in self._asked_for_time(can, known):
            can[position] = True
        return can & free

    def _asked_for_time(self, can: npt.NDArray[np.bool_], known: Mapping[str, int]) -> Iterator[int]:
        """Units that have nothing to do but to tell how far time has come, on demand (M25).

        Somebody holds rows back until the log of a unit is complete up to a time. If its inputs are, and it
        does not know yet, a run without rows says so; else whoever writes these is asked in turn.
        """
        wanted: dict[str, int] = {}
        for position in reversed(self._along_derived):
            unit = self.units[position]
            if can[position] or unit.run is not None or not self._alive[position]:
                continue
            asked = [ts for _, log in unit.plan.unit.outputs if (ts := wanted.get(log)) is not None]
            waits = list(self._dues_of(position))
            if asked:
                need, told, inputs = min(asked), unit.input_watermarks(), unit.plan.unit.inputs
                if any(known[log] < need for log in inputs):
                    waits.append(dict.fromkeys(inputs, need))
                elif any(told.get(log, BEGINNING) < need for log in inputs):
                    yield position
            for log, ts in ((log, ts) for due in waits for log, ts in due.items()):
                if log in self.writers and known[log] < ts:
                    wanted[log] = min(ts, wanted.get(log, ts))

    def _dues_of(self, position: int) -> Dues:
        if self._holds[position]:
            (log,) = self.units[position].plan.unit.inputs
            return ({log: int(self._due[position])},)
        return self._dues.get(position, ())

    def path(self, unit: RunningUnit) -> ResultPath:
        """The unit's own figures and those of all that comes of its results, as they are known now."""
        cost = unit.statistics.cost
        value = results = 0.0
        queries, overhead, per_row, within = 0, cost.overhead, cost.per_row, np.inf
        for log, share in self._shares(unit):
            goal = self._goals.get(log)
            if goal is not None:
                value, results, queries = value + share * goal.weight, results + share, queries + 1
                within = min(within, goal.within_s)
            for reader in self._readers.get(log, ()):
                behind = self.path(self.units[reader])
                value += share * behind.value
                results += share * behind.results
                queries += behind.queries
                overhead += behind.overhead_s
                per_row += share * behind.per_row_s
                within = min(within, behind.within_s)
        return ResultPath(value, results, queries, overhead, per_row, within)

    def _shares(self, unit: RunningUnit) -> Iterator[tuple[str, float]]:
        for _, log in unit.plan.unit.outputs:
            yield log, unit.statistics.selectivity(log)

    def ideal_time(self, log: str) -> IdealTime:
        """How long a row of this log would take from the arrival of what it is made of, alone."""
        return ideal_time(log, self._written)

    def rows_waiting(self, unit: str) -> tuple[int, float, int]:
        """How many rows wait at a unit: now, on average over time, and at most."""
        position = self.position[unit]
        return int(self.rows[position]), *self.waiting.of(position)


def _written(unit: RunningUnit) -> Iterator[tuple[str, Written]]:
    graph = unit.plan.graph
    inputs = {graph.streams.get(log, log): log for log in unit.plan.unit.inputs}
    for root, log in unit.plan.unit.outputs:
        yield log, Written(graph, root, inputs, unit.statistics)

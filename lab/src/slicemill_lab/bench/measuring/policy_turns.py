"""Turns of policies: recorded arrivals, replayed for one policy after another in one mill on one worker.

Before each turn, the statistics of tasks are reset to those of the calibration, so that all policies start
with the same costs and selectivities. The rows of each turn have their own partitions, so results do not
depend on earlier turns.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.kernels.arrays import Floats
from slicemill.lifecycle.query import LiveRows
from slicemill.metrics.profiling import Stages, recording
from slicemill.metrics.quality_of_service import StaleTime, Summary
from slicemill.scheduling.statistics import BatchCost
from slicemill_lab.bench.inputs.testbeds import RELATION, ArrivingRows, QueryBed, Recording, shifted
from slicemill_lab.bench.measuring.waiting import wait_until_read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METRICS = (
    "longest response",
    "greatest slowdown",
    "mean response",
    "mean slowdown",
    "l2 response",
    "l2 slowdown",
    "staleness",
)
"""Metrics, by the names in `slicemill_lab.policies.registry.OBJECTIVES`."""
_LONGEST = 0.999
"""Quantile that is used as the maximum."""
_BUSY = ("read: ", "run: ", "commit", "deliver")


class TaskCosts(NamedTuple):
    """Estimated time of a unit's runs by the calibrated costs, and their actual CPU time."""

    estimated_s: float
    real_s: float


@dataclass(frozen=True, slots=True)
class PolicyTurn:
    """Measurements of one turn by metric, with results, load, and costs of decisions and runs.

    `pace` is the time of all work over the estimated time of the units' runs.
    """

    felt: Mapping[str, float]
    results: Mapping[str, pa.Table]
    busy: float
    pace: float
    decision_ms: float
    costs: Mapping[str, TaskCosts]


class PolicyTurns:
    """Mill with the queries of a testbed, the costs of their tasks, and the capacity of the worker."""

    def __init__(self, spark: SparkSession, folder: Path, bed: QueryBed) -> None:
        self.bed = bed
        self._mill = Mill(spark, folder / bed.id, subtasks=1)
        self._mill.tables.set_rows(RELATION, bed.relation)
        self._mill.execute(bed.script)
        self._mill.open()
        self._streams = {query.name: query.stream for query in bed.queries}
        self._delivered: dict[str, list[tuple[pa.Table, float]]] = {}  # with the time of delivery
        for name, query in self._mill.queries.items():
            query.subscribe(partial(self._receive, name))
        self._turn = 0
        self._known: Mapping[str, Mapping[str, Any]] = {}
        self.service_s = self._calibrate()
        self._mill.dispatcher.start()

    def __enter__(self) -> PolicyTurns:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._mill.close()

    def _calibrate(self) -> float:
        """Return the seconds that one row of every stream takes without any other load.

        Rows arrive alone or in a burst, as on their stream. The time includes reading, deciding, running,
        committing and delivering. Tasks learn the costs of runs over few and many rows. Earlier runs only
        warm up the processes.
        """
        usual, other = self.bed.grid(), self.bed.grid(other_bursts=True)
        for arrival in usual[: len(self.bed.streams)]:
            self._serve(arrival)
        for task in self._mill.dispatcher.tasks.values():
            task.statistics.cost = BatchCost()
            task.statistics.selectivities.clear()
        took_s = 0.0
        # Alternate, because statistics forget old runs.
        for arrival in sorted([*usual, *other], key=lambda arrival: arrival.at_s):
            served_s = self._serve(arrival)
            took_s += served_s if any(arrival is one for one in usual) else 0.0
        self._known = {
            name: self._mill.dispatcher.running.writers[name].statistics.plain() for name in self._streams
        }
        rows = sum(len(arrival.rows) for arrival in usual)
        return took_s / rows * len(self.bed.streams)

    def _serve(self, arrival: ArrivingRows) -> float:
        """Return the time to process an arrival completely, without other arrivals."""
        self._begin_turn()
        began = time.perf_counter()
        self._mill.feed(arrival.stream, self._now(arrival))
        self._mill.dispatcher.run_all()
        return time.perf_counter() - began

    def costs(self) -> dict[str, tuple[float, float]]:
        """Return a and b of each query's task as calibrated, in seconds."""
        return {
            name: (known["cost"]["overhead"], known["cost"]["per_row"]) for name, known in self._known.items()
        }

    def selectivity(self, name: str) -> float:
        return float(self._known[name]["selectivities"][name]["value"])

    def gap_s(self, load: float) -> float:
        """Return the mean gap between rows of one stream for a load."""
        return self.service_s / load

    def under(self, policy: str, arrivals: Recording) -> PolicyTurn:
        """Replay arrivals under a policy."""
        mill = self._mill
        mill.dispatcher.chooser.set_policy(policy)
        self._begin_turn()
        with mill.dispatcher.paused():
            for name, known in self._known.items():
                mill.dispatcher.running.writers[name].statistics.restore(known)
        # Run every task once, so that its priority reflects its restored statistics.
        for arrival in self.bed.grid()[: len(self.bed.streams)]:
            mill.feed(arrival.stream, self._now(arrival))
        self._finish()
        self._begin_turn()
        before = self._counted()
        mill.dispatcher.decisions = Summary()
        with recording() as stages:
            began = time.time()
            came = self._replay(arrivals)
            self._finish()
            ended = time.time()
        results = {name: _in_order(found) for name, found in self._delivered.items() if found}
        felt = self._felt(came, arrivals[-1].at_s)
        busy_s, costs = _busy_s(stages), self._costs_since(before)
        pace = busy_s / sum(cost.estimated_s for cost in costs.values())
        decision_ms = 1000 * mill.dispatcher.decisions.mean
        return PolicyTurn(felt, results, busy_s / (ended - began), pace, decision_ms, costs)

    def _receive(self, name: str, live: LiveRows) -> None:
        self._delivered[name].append((live.table, time.time()))

    def _begin_turn(self) -> None:
        self._turn += 1
        self._delivered = {name: [] for name in self._streams}

    def _now(self, arrival: ArrivingRows) -> pa.Table:
        """Return the rows of an arrival for this turn."""
        return shifted(arrival.rows, self._turn).cast(self._mill.home.logs[arrival.stream].columns)

    def _replay(self, arrivals: Recording) -> dict[str, Floats]:
        """Feed rows at their recorded times. Return the actual arrival times by stream and row number."""
        tables = [self._now(arrival) for arrival in arrivals]
        came: dict[str, list[float]] = {stream: [] for stream in self.bed.streams}
        began = time.time()
        for (at_s, stream, rows), table in zip(arrivals, tables, strict=True):
            time.sleep(max(0.0, began + at_s - time.time()))
            self._mill.dispatcher.check()
            came[stream] += [time.time()] * len(rows)
            self._mill.feed(stream, table)
        return {stream: np.array(moments) for stream, moments in came.items()}

    def _finish(self) -> None:
        """Wait until all rows are read and all results are delivered."""
        wait_until_read(self._mill, list(self._streams))
        with self._mill.dispatcher.paused():
            pass

    def _felt(self, came: Mapping[str, Floats], span_s: float) -> dict[str, float]:
        responses, slowdowns, stale = [], [], []
        for name, (a, b) in self.costs().items():
            missing = StaleTime()
            for table, at_s in self._delivered[name]:
                arrivals = came[self._streams[name]][table.column("number").to_numpy()]
                responses.append(at_s - arrivals)
                slowdowns.append((at_s - arrivals) / (a + b))
                missing.add_batch(arrivals, at_s)
            stale.append(missing.staleness(span_s))
        response, slowdown = np.concatenate(responses), np.concatenate(slowdowns)
        return {
            "longest response": float(np.quantile(response, _LONGEST)),
            "greatest slowdown": float(np.quantile(slowdown, _LONGEST)),
            "mean response": float(response.mean()),
            "mean slowdown": float(slowdown.mean()),
            "l2 response": float(np.sqrt((response**2).sum())),
            "l2 slowdown": float(np.sqrt((slowdown**2).sum())),
            "staleness": float(np.mean(stale)),
        }

    def _counted(self) -> dict[str, tuple[int, int, float]]:
        found = {name: self._mill.dispatcher.running.writers[name].statistics for name in self._streams}
        return {name: (known.runs, known.rows_in, known.cpu_s) for name, known in found.items()}

    def _costs_since(self, before: Mapping[str, tuple[int, int, float]]) -> dict[str, TaskCosts]:
        found = {}
        for name, (runs, rows, cpu_s) in self._counted().items():
            (a, b), (runs_before, rows_before, cpu_before) = self.costs()[name], before[name]
            estimated_s = a * (runs - runs_before) + b * (rows - rows_before)
            found[name] = TaskCosts(estimated_s, cpu_s - cpu_before)
        return found


def _busy_s(stages: Stages) -> float:
    return sum(stage.seconds for name, stage in stages.items() if name.startswith(_BUSY))


def _in_order(found: Sequence[tuple[pa.Table, float]]) -> pa.Table:
    return (
        pa.concat_tables([table for table, _ in found])
        .select(["number", "s", "h"])
        .sort_by("number")
        .combine_chunks()
    )

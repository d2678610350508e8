"""Statistics of the runs of a task: cost of a run and selectivity, for scheduling and for display.

The cost of a run over N rows is a + b·N, fitted to past runs of the task. The cost is the duration of the
slowest subtask, without waiting time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, TypeAlias

from slicemill.metrics.quality_of_service import IdealTime
from slicemill.metrics.run_record import RunRecord, SubtaskRecord
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import SharedJoin, WindowJoin

# Statistics of a subtask, for load balancing, placement and display (S52).


@dataclass(slots=True)
class SubtaskStatistics:
    """Totals of a subtask (parallel instance of a task) since it was created in this process.

    `state_bytes` is the current size, not a total.
    """

    runs: int = 0
    rows: int = 0
    pairs: int = 0
    cpu_s: float = 0.0
    bytes_read: int = 0
    state_bytes: int = 0

    def add(self, record: SubtaskRecord) -> None:
        self.runs += 1
        self.rows += record.rows
        self.pairs += record.pairs
        self.cpu_s += record.cpu_s
        self.bytes_read += record.bytes_read
        self.state_bytes = record.state_bytes

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_s": round(self.cpu_s, 6)}


# Fixed cost of a run in seconds that is assumed until a run has been measured.
_FIRST_GUESS_S = 0.002


@dataclass(slots=True)
class TaskStatistics:
    runs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    cpu_s: float = 0.0
    rows_by_node: dict[str, int] = field(default_factory=dict)
    cost: BatchCost = field(default_factory=lambda: BatchCost(overhead=_FIRST_GUESS_S))
    selectivities: dict[str, Selectivity] = field(default_factory=dict)
    inputs: dict[str, float] = field(default_factory=dict)
    """Number of recent rows of each input log. Older rows count less (exponential decay)."""
    subtasks: dict[int, SubtaskStatistics] = field(default_factory=dict)
    rows_read: dict[str, int] = field(default_factory=dict)  # rows of all runs, by input
    # Number of row pairs that each join has compared, in all runs and subtasks.
    compared: dict[str, int] = field(default_factory=dict)

    def add(self, record: RunRecord) -> None:
        """Add the figures of one run of the task to the statistics."""
        for log, number in record.read.items():
            self.inputs[log] = self.cost.decay * self.inputs.get(log, 0.0) + number
            self.rows_read[log] = self.rows_read.get(log, 0) + number
        # The cost of the first run is not counted, because it includes compilation and imports.
        if self.runs:
            self.cost.observe(record.rows, record.seconds)
        self.runs += 1
        self.rows_in += record.rows
        self.rows_out += sum(record.written.values())
        self.cpu_s += record.cpu_s
        for subtask in record.subtasks:
            self.subtasks.setdefault(subtask.subtask, SubtaskStatistics()).add(subtask)
        for join, found in record.compared.items():
            self.compared[join] = self.compared.get(join, 0) + sum(one.total for one in found)
        for node, made in record.emitted.items():
            self.rows_by_node[node] = self.rows_by_node.get(node, 0) + made
        for log, made in record.written.items():
            self._count(log, record.rows, made)

    def _count(self, log: str, rows_in: int, rows_out: int) -> None:
        if rows_in and log not in self.selectivities:
            self.selectivities[log] = Selectivity(1.0, is_guess=True)
        if log in self.selectivities:
            self.selectivities[log].observe(rows_in, rows_out)

    def selectivity(self, log: str) -> float:
        """Return the mean number of rows that the task writes to a log per input row.

        Return 1 if no run has been measured.
        """
        known = self.selectivities.get(log)
        return 1.0 if known is None else known.value

    def worth(self, log: str) -> float:
        """Return the weight of a row of one join input, relative to the mean row of all inputs.

        The mean weight over the rows of all inputs is 1. Each result pair is emitted when its later row
        arrives, so every input causes about the same number of pairs. A row of an input with few rows
        therefore causes more results (P23).
        """
        own = self.inputs.get(log, 0.0)
        return sum(self.inputs.values()) / (len(self.inputs) * own) if own else 1.0

    def plain(self) -> dict[str, Any]:
        """Return the statistics that are stored across restarts, as JSON values."""
        return {
            "cost": asdict(self.cost),
            "selectivities": {log: asdict(known) for log, known in self.selectivities.items()},
            "inputs": dict(self.inputs),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        if kept:
            self.cost = BatchCost(**kept["cost"])
            self.selectivities = {log: Selectivity(**known) for log, known in kept["selectivities"].items()}
            self.inputs = dict(kept["inputs"])


# Adaptive statistics: selectivity over windows of rows, and cost of a run by regression (P21).


_LEAST_OVERHEAD = 0.1
"""Minimum fixed cost of a run, as a share of the duration of the shortest recent run.

If all runs have similar sizes, noise can make the fitted fixed cost 0. The ideal time would then be almost 0,
and slowdowns relative to it would be unbounded.
"""

_LEAST_S = 1e-6
"""Minimum duration of a run in seconds that is recorded, because clocks may be coarse."""


@dataclass(slots=True)
class Selectivity:
    """Selectivity of an operator: exponential average over windows of `window` input rows.

    A new window has the weight `alpha`. If the initial value is a guess (`is_guess`), the selectivity is the
    ratio of the counts so far, until the first window is full. Otherwise the first few rows would have the
    weight of a full window.
    """

    value: float
    alpha: float = 0.175
    window: int = 100
    is_guess: bool = False
    _inputs: int = 0
    _outputs: int = 0

    def observe(self, inputs: int, outputs: int) -> bool:
        """Add the input and output rows of a run; return True if the selectivity has changed.

        If it has changed, the caller recomputes priorities.
        """
        self._inputs += inputs
        self._outputs += outputs
        before, is_full = self.value, self._inputs >= self.window
        if self.is_guess:
            # One is added to both counts, because open windows may still emit results.
            self.value = (self._outputs + 1) / (self._inputs + 1)
        elif is_full:
            self.value = (1 - self.alpha) * before + self.alpha * self._outputs / self._inputs
        if is_full:
            self.is_guess, self._inputs, self._outputs = False, 0, 0
        return self.value != before


@dataclass(slots=True)
class BatchCost:
    """Cost of a run over N rows, estimated as a + b·N by linear regression.

    The line is fitted to past runs with exponential decay. Other load on the machine multiplies the duration
    of a run by a factor, so relative errors are minimised (weight 1 / time²). Absolute errors would hide the
    overhead, the fixed cost, which is most of the time of small runs. These weights favour quick runs. So the
    line is then scaled to match the total time of all runs. Until runs of two sizes have been measured, the
    initial values supply the missing coefficient.
    """

    overhead: float = 0.05
    per_row: float = 1e-6
    decay: float = 0.95
    _runs: float = 0.0
    _rows: float = 0.0
    _time: float = 0.0
    _weight: float = 0.0
    _weighted_rows: float = 0.0
    _weighted_time: float = 0.0
    _weighted_rows_rows: float = 0.0
    _weighted_rows_time: float = 0.0
    _quickest: float = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        keep, seconds = self.decay, max(seconds, _LEAST_S)
        weight = seconds**-2
        self._quickest = min(seconds, self._quickest / keep) if self._runs else seconds
        self._runs = keep * self._runs + 1
        self._rows = keep * self._rows + rows
        self._time = keep * self._time + seconds
        self._weight = keep * self._weight + weight
        self._weighted_rows = keep * self._weighted_rows + weight * rows
        self._weighted_time = keep * self._weighted_time + weight * seconds
        self._weighted_rows_rows = keep * self._weighted_rows_rows + weight * rows * rows
        self._weighted_rows_time = keep * self._weighted_rows_time + weight * rows * seconds
        self._fit()

    def _fit(self) -> None:
        mean_rows, mean_time = self._weighted_rows / self._weight, self._weighted_time / self._weight
        spread = self._weighted_rows_rows / self._weight - mean_rows**2
        if spread > 1e-9 * max(1.0, mean_rows**2):
            slope = (self._weighted_rows_time / self._weight - mean_rows * mean_time) / spread
            self.per_row = max(slope, 0.0)  # a run over more rows is never cheaper
        self.overhead = max(mean_time - self.per_row * mean_rows, _LEAST_OVERHEAD * self._quickest)
        if mean_rows:
            # A raised overhead lowers the cost per row, so that the line still passes through the mean run.
            self.per_row = max(mean_time - self.overhead, 0.0) / mean_rows
        raised = self._time / (self.overhead * self._runs + self.per_row * self._rows)
        self.overhead *= raised
        self.per_row *= raised

    def of(self, rows: float) -> float:
        return self.overhead + self.per_row * rows

    @property
    def mean_rows(self) -> float:
        """Return the recent mean number of rows per run, or 1 before the first run."""
        return max(self._rows / self._runs, 1.0) if self._runs else 1.0

    @property
    def ideal_time(self) -> float:
        """Return the duration of a run that processes a single row."""
        return self.of(1)


# Ideal time T: the response time of a result without other load (P22).
#
# A run over N rows takes a + b·N. A join result is made from several rows, and T is the work on all of them,
# as `slicemill_lab.charts.composites` defines it for operators. The part of T that is spent on the last of
# these rows may be smaller.


class CompositeOrigin(NamedTuple):
    """Origin of a row that is made from the rows of several logs.

    A row of a join is made from one row of each part. A row of a union is made from one row of one part.
    """

    joined: bool
    parts: tuple[MadeOf, ...]


# Origin of a row: one log, or a combination of several logs.
MadeOf: TypeAlias = str | CompositeOrigin


class LogOrigin(NamedTuple):
    """Origin of the rows of a log, and the statistics of the task that writes the log."""

    made_of: MadeOf
    statistics: TaskStatistics


def made_of(node_id: str, graph: QueryGraph, known: dict[str, MadeOf]) -> MadeOf:
    """Return the logs from whose rows an operator makes its output rows.

    `known` initially has the log of each source node. The function uses it as a cache.
    """
    if node_id not in known:
        node = graph[node_id]
        parts = tuple(made_of(given, graph, known) for given in node.inputs)
        joined = isinstance(node.operator, (WindowJoin, SharedJoin))
        known[node_id] = parts[0] if len(parts) == 1 else CompositeOrigin(joined, parts)
    return known[node_id]


def ideal_time(log: str, writers: Mapping[str, LogOrigin]) -> IdealTime:
    """Return the ideal time of the rows of a log: their response time without other load.

    The ideal time is 0 for streams with a source, which no task writes.
    """
    if log not in writers:
        return IdealTime(0.0, 0.0)
    written = writers[log]
    rows, run_s = _rows(written.made_of, written, writers), written.statistics.cost.overhead
    return IdealTime(rows.whole_s + run_s, rows.last_s + run_s)


def _rows(made_of: MadeOf, written: LogOrigin, writers: Mapping[str, LogOrigin]) -> IdealTime:
    """Return the ideal time (response time without other load) of rows, excluding fixed cost of runs."""
    if isinstance(made_of, str):
        row, row_s = ideal_time(made_of, writers), written.statistics.cost.per_row
        return IdealTime(row.whole_s + row_s, row.last_s + row_s)
    parts = [_rows(part, written, writers) for part in made_of.parts] or [IdealTime(0.0, 0.0)]
    together = sum if made_of.joined else max
    return IdealTime(together([part.whole_s for part in parts]), max(part.last_s for part in parts))

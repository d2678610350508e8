"""A unit at run time: what is pending, running it in a Spark job, committing what it did."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from slicemill.engine.load_control import LoadControl
from slicemill.engine.program import UnitPlan
from slicemill.engine.steps import END
from slicemill.engine.task import InputSpan, Task, TaskResult, run_task
from slicemill.ingest.needs import columns_read
from slicemill.metrics.stages import spent, stage
from slicemill.metrics.unit_statistics import UnitStatistics, own_seconds
from slicemill.plan.members import names_of_state, without_outputs
from slicemill.plan.operators import Sink
from slicemill.plan.partitions import cell_count
from slicemill.plan.slices.coverage import Covers, admitted, members_behind
from slicemill.shedding.control import Backlog
from slicemill.shedding.report import Report
from slicemill.storage.home import Home
from slicemill.storage.log import StreamLog
from slicemill.storage.log_epoch import Epoch
from slicemill.storage.state import Output, SliceInfo, UnitVersion, commit_run, roll_forward

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.core.broadcast import Broadcast

_BUCKET_STATE = "states"
_SPLIT = "buckets"
_OUTPUTS = "outputs"
_SINCE = "since"
_NEWCOMERS = "newcomers"
_FAILED = "failed"
_STATISTICS = "statistics"
_NO_BACKLOG = Backlog(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Run:
    """A run under way: from which version, over which epochs, with what is known to be complete."""

    unit: RunningUnit
    version: UnitVersion
    epochs: Mapping[str, list[Epoch]]
    complete: Mapping[str, int]
    tasks: list[Task]

    @property
    def rows(self) -> int:
        """What it takes of what waited."""
        share = min((dropping.share for dropping in self.tasks[0].dropping.values()), default=1.0)
        return round(sum(epoch.rows for new in self.epochs.values() for epoch in new) * share)


class RunningUnit:
    """A unit with its state in a home."""

    def __init__(self, plan: UnitPlan, home: Home, start_at: Mapping[str, int]) -> None:
        self.statistics = UnitStatistics()
        self.sheds: dict[str, Report] = {}  # by node
        self._commit_s = 0.0
        self._home = home
        self._store = home.unit_store(plan.unit.id)
        written = sorted(log for _, log in plan.unit.outputs)
        reached = [ts for log in plan.unit.inputs if (ts := home.logs[log].frontier) is not None]
        self.since = dict.fromkeys(written, max(reached, default=None))
        if self._store.latest() is None:
            extra = {_SPLIT: plan.buckets, _OUTPUTS: written, _SINCE: self.since}
            self._store.commit(0, UnitVersion(dict(start_at), extra=extra))
        roll_forward(self._store, home.logs)
        self.statistics.restore(self._extra(_STATISTICS))
        # State is split as it was when the unit began, however many cores there are now.
        split = int(str(self.version.extra[_SPLIT]))
        self.plan = replace(plan, buckets=cell_count(plan.unit, plan.graph, split))
        self._broadcast: Broadcast[bytes] | None = None
        # What its inputs had reached when a query came: it has seen all that is later.
        self.since |= {log: ts for log, ts in self._extra(_SINCE).items() if log in written}
        self.failed = {log: error for log, error in self._extra(_FAILED).items() if log in written}
        # What is in the logs now was stored for the queries of then: others of this unit start behind it.
        known = self.version.extra.get(_OUTPUTS, written)
        assert isinstance(known, list)
        self._joining = frozenset(written).difference(known)
        self._join_after = {log: home.logs[log].head for log in plan.unit.inputs}
        # Members of shared operators that no run has counted in so far; of joins, those whose state serves.
        self._newcomers: Covers = {
            name: (left, right)
            for name, (left, right) in self._extra(_NEWCOMERS).items()
            if name in plan.graph.nodes
        }
        self._load = LoadControl(self.plan.unit, self.plan.graph, self.version)
        self._prepare()
        if known != written:
            self._join()

    def _join(self) -> None:
        """Make all queries full members, if nothing is pending that came before some of them."""
        if not self.pending():
            graph = self.plan.graph
            members = {log: list(members_behind(graph, root)) for root, log in self.plan.unit.outputs}
            new = [root for root, log in self.plan.unit.outputs if log in self._joining]
            # The last run let go of what nobody wanted by then, which may be later than the last row.
            passed = min(self.told().values(), default=-END)
            if -END < passed < END:
                self.since |= {log: max(self.since[log] or passed, passed) for log in self._joining}
            served, self.since = admitted(members, self._joining, self._newcomers, self.since)
            alone = {
                name: (None, None) for root in new for name in names_of_state(graph, self.plan.unit, root)
            }
            self._newcomers = {**alone, **served}
            self._joining = frozenset()
            self._prepare()
            self.settle()

    def _prepare(self) -> None:
        """What tasks get: the plan without those that are still joining, who must not count what is old."""
        unit, graph = self.plan.unit, self.plan.graph
        if self._joining:
            unit, graph = without_outputs(unit, graph, self._joining)
        self.release()
        self.pickled = cloudpickle.dumps(
            replace(self.plan, unit=unit, graph=graph, newcomers=self._newcomers)
        )
        self.digest = hashlib.sha256(self.pickled).hexdigest()
        self._needed = self._columns_needed()

    def broadcast(self, context: SparkContext) -> Broadcast[bytes]:
        """The pickled plan where tasks find it; a worker fetches it when it first needs it."""
        if self._broadcast is None:
            self._broadcast = context.broadcast(self.pickled)
        return self._broadcast

    def release(self) -> None:
        """The unit will not run again in this form."""
        if self._broadcast is not None:
            self._broadcast.destroy()
            self._broadcast = None

    def settle(self) -> None:
        """Keep all promises of the last run in a version that makes none, before its logs may go."""
        version = self.version
        extra = {
            **version.extra,
            _FAILED: self.failed,
            _OUTPUTS: self._members(),
            _SINCE: self.since,
            _NEWCOMERS: self._newcomers,
            _STATISTICS: self.statistics.plain(),
        }
        commit_run(self._store, UnitVersion(version.cursors, version.slices, {}, extra), self._home.logs)

    def _members(self) -> list[str]:
        return sorted(log for _, log in self.plan.unit.outputs if log not in self._joining)

    @property
    def id(self) -> str:
        return self.plan.unit.id

    @property
    def version(self) -> UnitVersion:
        latest = self._store.latest()
        assert latest is not None
        return latest

    def cursor(self, log: str) -> int:
        return self.version.cursors.get(log, self._home.logs[log].head)

    def pending(self) -> list[Epoch]:
        """Epochs that have come since the last run."""
        return [epoch for log in self.plan.unit.inputs for epoch in self.new_epochs(log)]

    @property
    def joining(self) -> bool:
        """Do some of its queries wait until what came before them is read?"""
        return bool(self._joining)

    def new_epochs(self, log: str) -> list[Epoch]:
        epochs = self._home.logs[log].epochs(after=self.cursor(log))
        if not self._joining:
            return epochs
        return [epoch for epoch in epochs if epoch.number <= self._join_after[log]]

    def told(self) -> Mapping[str, int]:
        """How far each input was complete at the last run."""
        return self._extra("told")

    def complete(self, log: str) -> int:
        """How far an output log is complete, by the last run."""
        return int(self._extra("complete").get(log, -END))

    def _extra(self, name: str) -> dict[str, Any]:
        found = self.version.extra.get(name, {})
        assert isinstance(found, dict)
        return found

    @property
    def due(self) -> int | None:
        """How far the inputs must be complete for something held back to come out."""
        due = self.version.extra.get("due")
        return int(str(due)) if due is not None else None

    @property
    def load_weight(self) -> float:
        """How much those of its queries matter that may give something up under load; 0 if none does."""
        return self._load.weight

    def begin(self, complete: Mapping[str, int], now: int, backlog: Backlog = _NO_BACKLOG) -> Run:
        """What a run that begins now would read, as tasks; nothing changes before `finish`."""
        version = self.version
        epochs = {log: self.new_epochs(log) for log in self.plan.unit.inputs}
        dropping = self._load.decide(epochs, version, backlog, now)
        tasks = [
            replace(self._task(bucket, version, epochs, complete), dropping=dropping)
            for bucket in range(self.plan.buckets)
        ]
        return Run(self, version, epochs, complete, tasks)

    def finish(self, run: Run, results: list[TaskResult], now: int, seconds: float) -> None:
        """Commit what the tasks of a run have done; it would have taken so many seconds alone."""
        for result in results:
            spent(result.seconds)
            self.failed |= result.errors
            self.sheds |= result.sheds
        # What a run teaches is committed with it; committing itself is taken to last as long as last time.
        self.statistics.add(run.rows, self._members(), results, seconds + self._commit_s)
        began = time.perf_counter()
        self._commit(run.version, run.epochs, run.complete, results, now)
        self._commit_s = time.perf_counter() - began
        if self._newcomers:
            # The state that this run has left knows them.
            self._newcomers = {}
            self._prepare()
        if self._joining:
            self._join()

    def _task(
        self,
        bucket: int,
        version: UnitVersion,
        epochs: Mapping[str, list[Epoch]],
        complete: Mapping[str, int],
    ) -> Task:
        state = tuple(part.chunk for part in version.slices if part.bucket == bucket)
        inputs = {}
        for log, new in epochs.items():
            opened = self._home.logs[log]
            inputs[log] = InputSpan(
                opened.folder, opened.columns, tuple(new), complete[log], self._needed[log]
            )
        outputs = {log: self._home.logs[log].folder for _, log in self.plan.unit.outputs}
        return Task(bucket, self.digest, state, self._store.folder, inputs, outputs)

    def _columns_needed(self) -> dict[str, frozenset[str]]:
        """The columns that members read of each declared stream; other logs have all of theirs, always."""
        roots = [root for root, output in self.plan.unit.outputs if output not in self._joining]
        graph = self.plan.graph.only(node for root in roots for node in self.plan.graph.ancestors(root))
        declared = {node.id for node in graph.sources}
        return {
            log: columns_read(log, graph) if log in declared else frozenset() for log in self.plan.unit.inputs
        }

    def _commit(
        self,
        version: UnitVersion,
        epochs: Mapping[str, list[Epoch]],
        complete: Mapping[str, int],
        results: list[TaskResult],
        now: int,
    ) -> None:
        cursors = dict(version.cursors)
        cursors.update({log: new[-1].number for log, new in epochs.items() if new})
        outputs: dict[str, Output] = {}
        done: dict[str, int] = {}
        for node_id, log in self.plan.unit.outputs:
            chunks = tuple(result.chunks[log] for result in results if log in result.chunks)
            if chunks and log not in self.failed:
                outputs[log] = Output(chunks, self._came(node_id, log, results, now))
            told = [result.complete[log] for result in results if log in result.complete]
            done[log] = max(self.complete(log), min(told, default=-END))
        slices = tuple(
            SliceInfo(_BUCKET_STATE, result.bucket, chunk) for result in results for chunk in result.state
        )
        dues = [result.due for result in results if result.due is not None]
        extra = {
            "told": dict(complete),
            "complete": done,
            "due": min(dues, default=None),
            _FAILED: self.failed,
            _SPLIT: self.plan.buckets,
            _OUTPUTS: self._members(),
            _SINCE: self.since,
            _STATISTICS: self.statistics.plain(),
            **self._load.plain(),
        }
        commit_run(self._store, UnitVersion(cursors, slices, outputs, extra), self._home.logs)

    def _came(self, node_id: str, log: str, results: list[TaskResult], now: int) -> int:
        """When what a run has written arrived: results now, for they are kept from now on.

        Rows of a derived stream are on their way to results, and have waited since the oldest of them came.
        """
        if isinstance(self.plan.graph[node_id].operator, Sink):
            return now
        return min((came for result in results for came, _ in result.arrivals.get(log, ())), default=now)


def execute(context: SparkContext, runs: Sequence[Run], clock: Callable[[], int]) -> list[list[TaskResult]]:
    """Run all tasks as one Spark job, then commit run by run."""
    tasks = [task for run in runs for task in run.tasks]
    plans = {run.unit.digest: run.unit.broadcast(context) for run in runs}
    began = time.perf_counter()
    with stage("unit job"):
        done = context.parallelize(tasks, len(tasks)).map(partial(run_task, plans=plans)).collect()
    job_s = time.perf_counter() - began
    results: list[list[TaskResult]] = []
    for run in runs:
        results.append(done[: len(run.tasks)])
        done = done[len(run.tasks) :]
    alone_s = own_seconds(results, job_s, context.defaultParallelism)
    for run, found, seconds in zip(runs, results, alone_s, strict=True):
        with stage("unit commit"):
            run.unit.finish(run, found, clock(), seconds)
    return results


def open_outputs(plan: UnitPlan, home: Home) -> dict[str, StreamLog]:
    """The logs that a unit writes, made with the schemas of its results."""
    return {log: home.log(log, plan.graph[node_id].schema) for node_id, log in plan.unit.outputs}

"""Running task: its cursors, its current run, and its checkpoints.

The journal holds the persistent state of a task as one dictionary of fields:

    cursors            {log: epoch}      last epoch read of each input
    input_watermarks   {log: µs}         watermark of each input at the last run
    output_watermarks  {log: µs}         watermark of each output
    due                [{log: µs}]       input watermarks at which the task emits held-back rows
    begun              true              the task has emitted the results that exist before the first row
    checkpoint         {cursors, input_watermarks, files}   snapshot of the state, with files by subtask;
                                         also `begun`, and `placement` if the task was rescaled since
    checkpoint_before                    previous checkpoint with the changes since then; restored if a
                                         file of the last checkpoint is damaged
    latest             {node: µs}        greatest row timestamp of all subtasks, for operators that emit rows
                                         at the end of input
    placement          {kind, shape, by} which subtasks probe a row, and which subtasks store it
    joined_on          {input: key}      for joins on one key: the key of each input, used to merge joins
    heavy              [[hash, home, since, fades, over]]   heavy keys, whose rows go to all subtasks
    failed             {log: reason}     stopped queries and streams
    resumable          [log]             failed outputs that can resume from the cursors: all failed together
    backfill           {query, from, …}  for a query that begins in the past (`lifecycle.backfill`)
    newcomers          {name: …}         state that was created after the checkpoint
    successors         {name: name}      state that a new definition took over from the replaced one; the
                                         checkpoint has it under the old name
    parts_taken        {node: [index]}   of successors: the former calls or columns that provide their state
    outputs, since, statistics, load

Between two checkpoints, the state is only in the memory of workers. It is a function of the checkpoint and of
the log after it. A worker that takes over a subtask restores the checkpoint and replays the log from
`checkpoint.cursors` to `cursors`.

Workers write a checkpoint while the task continues to run (`PendingCheckpoint`). Until all its files are
complete, the journal names the previous checkpoint, and the log after the previous checkpoint is retained.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from slicemill.catalog.catalog import LATE, TimestampKind
from slicemill.metrics.due_times import Arrivals, TimeMoments
from slicemill.metrics.run_record import RunRecord
from slicemill.operators.alignment import Dues, earliest
from slicemill.operators.join.heavy_keys import KeySample
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.join.spec import is_two_way
from slicemill.operators.protocol import longest_us
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import QueryResults
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.history import history_us
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.overlapping_joins import logs_read
from slicemill.plan.partitioning import Exchange
from slicemill.plan.placement import PlacementKind, former_subtasks, placements_of
from slicemill.plan.projection_pushdown import columns_read
from slicemill.runtime.culprits import CulpritSearch
from slicemill.runtime.load_control import LoadControl
from slicemill.runtime.messages import (
    CheckpointDone,
    CheckpointTask,
    LogSpan,
    OutputLog,
    Restore,
    RunDone,
    RunTask,
)
from slicemill.runtime.pipeline import TaskPlan, pack_plan
from slicemill.runtime.retained_logs import WHOLE
from slicemill.runtime.skew import HeavyKeys, SkewedSide
from slicemill.runtime.step_limit import FAR_LONGER
from slicemill.scheduling.statistics import MadeOf, TaskStatistics, made_of
from slicemill.shedding.accuracy import AccuracyReport, merge_reports
from slicemill.shedding.load import Backlog, Comparisons
from slicemill.storage.changes import Appended, Change, merge_appended
from slicemill.storage.home import Home
from slicemill.storage.home_state import BEFORE, SINCE_CHECKPOINT, fallback_fields
from slicemill.storage.log import Epoch
from slicemill.time import BEGINNING, END

_LOGGER = logging.getLogger("slicemill")

# Maximum number of rows of one input that a run reads, to bound memory.
# After a failed run, this maximum is divided by _FEWER.
_ROWS_PER_RUN, _FEWER = 1_000_000, 16
BACKFILL = "backfill"
# Number of consecutive failed runs after which a task is stopped.
# A run fails if it crashes a worker or if all its queries fail.
_STRIKES = 3
# A step of a run is interrupted after STEP_S seconds of processor time.
# If _FAR_LONGER times the usual time of the run is longer, the step may take that time.
STEP_S, _FAR_LONGER = 10.0, 20.0
# A checkpoint of a task is due after this many rows or this many seconds.
CHECKPOINT_ROWS, CHECKPOINT_S = 200_000, 10.0
# Maximum number of checkpoint intervals that a due checkpoint waits for idle workers.
_OVERDUE = 4


@dataclass(slots=True, kw_only=True)
class TaskRun:
    """Current run of a task: its input rows and watermarks, and the answers of its subtasks."""

    task: RunningTask
    number: int
    epochs: Mapping[str, list[Epoch]]
    input_watermarks: Mapping[str, int]
    shares: float
    done: list[RunDone] = field(default_factory=list)
    lost: int = 0  # number of subtasks whose run failed
    failed: str | None = None
    disk_full: bool = False
    checkpoint_damaged: bool = False
    suspects: Sequence[str] = ()  # logs of the queries that need the step in which a worker ended
    stuck: str | None = None  # reason why a worker was killed in a stuck step
    blameless: bool = False  # True if a worker was killed in a stuck step, even one of another task

    @property
    def errors(self) -> dict[str, str]:
        """Return the errors that subtasks have reported so far, by output log."""
        return {log: why for done in self.done for log, why in done.errors.items()}

    @property
    def rows(self) -> int:
        """Return the number of rows that the run processes, without rows dropped by load shedding."""
        return sum(self.rows_by_input().values())

    def rows_by_input(self) -> dict[str, int]:
        return {
            log: round(sum(epoch.rows for epoch in new) * self.shares) for log, new in self.epochs.items()
        }

    @property
    def answered(self) -> int:
        return len(self.done) + self.lost

    @property
    def all_done(self) -> bool:
        return len(self.done) == self.task.subtasks


@dataclass(frozen=True, slots=True)
class PendingCheckpoint:
    """Checkpoint of a task that workers are writing, with the files that are complete."""

    run: int
    cursors: Mapping[str, int]
    input_watermarks: Mapping[str, int]
    rows: int  # number of rows read since the previous checkpoint
    begun_s: float
    files: dict[int, tuple[Any, ...]]


class RunningTask:
    """Operators that the driver schedules as one task. Their persistent fields are in the journal.

    If rows are distributed by key, rows of heavy keys go to all subtasks, unless `by_key_alone` is set.
    """

    def __init__(self, plan: TaskPlan, home: Home, mill: str, *, by_key_alone: bool = False) -> None:
        self._home = home
        self.plan = plan
        self.read_by: Mapping[
            str, tuple[Exchange, ...]
        ] = {}  # log -> exchanges (partitionings) of its readers
        self.id = plan.task.id
        self.packed = pack_plan(self.plan)
        self.digest = hashlib.sha256(self.packed).hexdigest()
        self.statistics = TaskStatistics()
        self.statistics.restore(self._field("statistics"))
        self.sheds: dict[str, AccuracyReport] = {}  # graph node -> report of its load shedding
        self.state_bytes = 0
        self.strikes = 0
        self.warm_us: int | None = None  # time of the first run since the engine started
        self.run: TaskRun | None = None
        self._search: CulpritSearch | None = None
        self._failed_run: TaskRun | None = None  # failed run that the search for its cause repeats
        # True if the last search found no failing query, and no run has succeeded since that search
        self._cleared = False
        self.kept_share = 1.0  # share of the last run's rows that were processed, not shed
        self._mill = mill
        self._runs = 0
        self._committed_run = 0
        self._rows_since_checkpoint = 0
        self._checkpointed_s = time.monotonic()
        self._begun: PendingCheckpoint | None = None
        self._spread_keys: tuple[HeavyKey, ...] = ()
        self.by_key_alone = by_key_alone
        self._heavy = None if by_key_alone else self._heavy_keys()
        self._load = LoadControl(self.plan.task, self.plan.graph, self._field("load"))
        self._needed = self._columns_needed()
        # Output log -> inputs on which it depends.
        self._read_by = logs_read(plan.task, plan.graph)

    def inherit_from(self, before: RunningTask) -> None:
        """Take over the statistics and the load control that the task had before a rescale."""
        self.statistics, self.sheds, self.state_bytes = before.statistics, before.sheds, before.state_bytes
        self.statistics.subtasks = {}
        self.warm_us, self.strikes = before.warm_us, before.strikes
        self._load = before._load

    # -- properties ------------------------------------------------------------------------------------

    @property
    def subtasks(self) -> int:
        return self.plan.subtasks

    @property
    def fields(self) -> Mapping[str, Any]:
        return self._home.tasks[self.id]

    def _field(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._home.tasks[self.id].get(name, {})
        return found

    @property
    def failed(self) -> Mapping[str, str]:
        return self._field("failed")

    @property
    def resumable(self) -> Sequence[str]:
        """Return the failed outputs that can resume from the committed state and lose no rows."""
        found: list[str] = self.fields.get("resumable", [])
        return found

    @property
    def left_out(self) -> frozenset[str]:
        """Return the output logs that the next run omits.

        They are the failed outputs. In a search for failing queries, they are all outputs that are not on
        trial.
        """
        if self._search is None:
            return frozenset(self.failed)
        return frozenset(log for _, log in self.plan.task.outputs if log not in self._search.trial)

    @property
    def searching(self) -> bool:
        """Return True during a search for the queries that make a run fail (`CulpritSearch`)."""
        return self._search is not None

    @property
    def has_failed(self) -> bool:
        """Return True if all outputs have failed."""
        return all(log in self.failed for _, log in self.plan.task.outputs)

    @property
    def is_idle(self) -> bool:
        """Return True if all outputs have failed or are paused."""
        # A new query has no log until it has joined the shared plan, and counts as active.
        logs = self._home.logs
        return all(
            log in self.failed or (log in logs and logs[log].hold is not None)
            for _, log in self.plan.task.outputs
        )

    @property
    def since(self) -> Mapping[str, int | None]:
        """Map each query to the greatest input timestamp at the time when the query was added."""
        return self._field("since")

    def input_watermarks(self) -> Mapping[str, int]:
        """Return the watermark of each input at the last run."""
        return self._field("input_watermarks")

    def watermark(self, log: str) -> int:
        """Return the watermark of an output after the last run."""
        return int(self._field("output_watermarks").get(log, BEGINNING))

    def inputs_of_idle(self, log: str) -> frozenset[str]:
        """Return the inputs whose watermarks alone advance the watermark of an idle output (M23).

        An idle task holds back no rows. The set is empty if the output's watermark advances only by a run.
        """
        inputs = self._read_by[log]
        # Held-back rows limit an output's watermark only if they wait just for inputs of this output.
        if self.begins or self.run is not None or any(due.keys() <= inputs for due in self.due):
            return frozenset()
        behind = any(self._home.logs[read].head > self.cursor(read) for read in inputs)
        return frozenset() if behind else inputs

    def watermark_now(self, log: str, inputs: Iterable[int]) -> int:
        """Return the current watermark of an output, given the watermarks of its inputs.

        The inputs are those of `inputs_of_idle`. The watermark is the minimum of their watermarks, minus the
        SLACK of the task's operators. At the end of input the task must run, because it may emit more rows.
        """
        own, least = self.watermark(log), min(inputs, default=END)
        return own if least == END else max(own, least - self._slack_us[log])

    @cached_property
    def _slack_us(self) -> dict[str, int]:
        """Map each output log to the lag of its watermark behind the input watermarks."""
        task, graph = self.plan.task, self.plan.graph
        slack = {id_: kind_of(graph[id_].operator).slack_us(graph[id_].operator) for id_ in task.nodes}
        return {log: sum(slack.get(id_, 0) for id_ in graph.ancestors(root)) for root, log in task.outputs}

    @property
    def due(self) -> Dues:
        """Return the input watermarks at which the task emits rows that it holds back.

        The rows are emitted when, in any one entry, all input logs have reached their watermarks.
        """
        return tuple(self.fields.get("due", ()))

    @property
    def begins(self) -> bool:
        """Return True if the task must still emit the results that exist before the first input row."""
        return self._has_changes and not self.fields.get("begun", False)

    @cached_property
    def _has_changes(self) -> bool:
        return self.plan.has_changes

    @cached_property
    def made_of(self) -> dict[str, MadeOf]:
        """Map each output log to the input logs from which its rows are made."""
        task, graph = self.plan.task, self.plan.graph
        known: dict[str, MadeOf] = {graph.streams.get(log, log): log for log in task.inputs}
        return {log: made_of(root, graph, known) for root, log in task.outputs}

    @cached_property
    def logs_released_by_time(self) -> list[str]:
        """Return the output logs whose rows are emitted when windows end."""
        task, graph = self.plan.task, self.plan.graph
        waiting = {
            node_id
            for node_id in task.nodes
            if len(graph[node_id].inputs) == 1
            and kind_of(operator := graph[node_id].operator).waits_for_time(operator, TimestampKind.EXTERNAL)
        }
        outputs = task.outputs if waiting else ()
        return [log for root, log in outputs if not waiting.isdisjoint(graph.ancestors(root))]

    @property
    def catching_up(self) -> bool:
        """Return True while the task is backfilling, that is, reading old rows for a new query."""
        backfill = self.fields.get(BACKFILL)
        return backfill is not None and "done" not in backfill

    @property
    def rows_left(self) -> int:
        """Return the number of input rows that the task has not read."""
        return sum(self._home.logs[log].rows_after(self.cursor(log)) for log in self.plan.task.inputs)

    def reads(self, log: str) -> frozenset[str]:
        """Return the input logs on which an output log depends."""
        return self._read_by[log]

    @property
    def load_weight(self) -> float:
        """Return the mean weight of the queries that may shed rows, or 0 if no query may."""
        return self._load.weight

    def cursor(self, log: str) -> int:
        return int(self._field("cursors").get(log, self._home.logs[log].head))

    def new_epochs(self, log: str) -> list[Epoch]:
        return self._home.logs[log].epochs(after=self.cursor(log), of_now=True)

    def pending(self) -> list[Epoch]:
        """Return the epochs (commits) appended to the inputs since the task's last run."""
        return [epoch for log in self.plan.task.inputs for epoch in self.new_epochs(log)]

    @property
    def has_pending(self) -> bool:
        return any(self._home.logs[log].head > self.cursor(log) for log in self.plan.task.inputs)

    def waiting(self, log: str, upto: int) -> tuple[int, int, int | None]:
        """Return the numbers of unread commits and unread rows of an input, and the oldest arrival time."""
        return self._home.logs[log].waiting(self.cursor(log), upto)

    @property
    def needed_from(self) -> Mapping[str, int]:
        """Map each input log to the number of its last epoch (commit) that is no longer needed.

        The task and its replays need all later epochs. A replay may start from the last checkpoint or from
        the previous one.
        """
        if not self.plan.task.stateful:
            return self._field("cursors")
        cursors: dict[str, int] = self._field("checkpoint")["cursors"]
        before: dict[str, int] = self._field(BEFORE).get("cursors", {})
        return {log: min(at, before.get(log, at)) for log, at in cursors.items()}

    # -- running ---------------------------------------------------------------------------------------

    def begin(
        self,
        watermarks: Mapping[str, int],
        moments: tuple[TimeMoments, ...],
        now: int,
        backlog: Backlog,
        share: float = 1.0,
    ) -> TaskRun:
        """Start a run over the oldest `share` of the pending rows.

        `moments` has the times at which the source streams reached timestamps. During a search for failing
        queries, a run reads the rows of the failed run.
        """
        self._runs += 1
        if (failed := self._failed_run) is not None:
            self.run = TaskRun(
                task=self,
                number=self._runs,
                epochs=failed.epochs,
                input_watermarks=failed.input_watermarks,
                shares=failed.shares,
            )
            return self.run
        epochs: dict[str, list[Epoch]] = {}
        marks = dict(watermarks)
        for log in self.plan.task.inputs:
            opened, cursor = self._home.logs[log], self.cursor(log)
            most = _ROWS_PER_RUN / _FEWER**self.strikes
            taken, next_ts = opened.take(cursor, min(share * opened.rows_after(cursor), most))
            left = [] if next_ts is None else [next_ts]
            # The last row of a time-sorted log advances the watermark of every subtask.
            read = [epoch.max_ts for epoch in taken if epoch.max_ts is not None]
            # Rows that are left for the next run limit the watermark of this run.
            marks[log] = max(min([marks[log], *left]), self.input_watermarks().get(log, BEGINNING), *read)
            if read and marks[log] == END and self.subtasks > 1 and self.plan.emits_at_end:
                # Rows emitted at the end of input depend on the greatest timestamp of all subtasks.
                # This timestamp is known after this run, so the next run gets the watermark END.
                marks[log] = max(read)
            epochs[log] = taken
        # The many rows of a backfill (read of old rows) are no sign of overload, so no rows are shed.
        behind = self.catching_up
        dropping = {} if behind else self._load.decide(epochs, self.state_bytes, backlog, now)
        shares = min((dropped.share for dropped in dropping.values()), default=1.0)
        self.kept_share = shares
        self._spans = {log: self._span(log, epochs[log], marks[log]) for log in self.plan.task.inputs}
        self._dropping, self._moments, self._begun_us = dropping, moments, now
        if self._heavy is not None:
            self._heavy.predict(max(self.input_watermarks().values(), default=BEGINNING) + 1)
            self._spread_keys = self._heavy.keys
        self.run = TaskRun(task=self, number=self._runs, epochs=epochs, input_watermarks=marks, shares=shares)
        return self.run

    def item(self, subtask: int, *, restore: bool, checkpoint: bool) -> RunTask:
        """Return the work item by which a worker runs one subtask."""
        outputs = {
            log: OutputLog(
                self._home.logs[log].folder, self.read_by.get(log, ()), self._incomplete_until(log)
            )
            for _, log in self.plan.task.outputs
            # A new query has no log until it has joined the shared plan.
            if log in self._home.logs and not self.searching
        }
        return RunTask(
            mill=self._mill,
            task=self.id,
            subtask=subtask,
            plan=self.digest,
            run=self._runs,
            after=self._committed_run,
            inputs=self._spans,
            outputs=outputs,
            state_folder=self.state_folder,
            moments=self._moments,
            now_us=self._begun_us,
            latest=self._field("latest"),
            dropping=self._dropping,
            heavy=self._spread_keys,
            restore=self._restore(subtask) if restore else None,
            checkpoint=checkpoint and self.plan.task.stateful and not self.searching,
            failed=self.left_out,
            limit_s=self.limit_s,
        )

    def _incomplete_until(self, log: str) -> int | None:
        """Return the time up to which the rows of an output are incomplete, or None.

        A row is incomplete if its window began before the query was created. It looks like a complete row, so
        the task does not emit it.
        """
        since, after_us = self.since.get(log), self._field(BACKFILL).get("after")
        if since is None or not self._histories[log]:
            return after_us
        complete_us = since + self._histories[log]
        return complete_us if after_us is None else max(after_us, complete_us)

    @cached_property
    def _histories(self) -> dict[str, int]:
        """Map each output log to the time span of input rows that contribute to one of its rows.

        The span is 0 if the output also emits incomplete rows.
        """
        graph, found = self.plan.graph, {}
        for root, log in self.plan.task.outputs:
            results = graph[root].operator
            shown = isinstance(results, QueryResults) and results.incomplete
            counted = not shown and not graph[root].schema.changelog and self._computes_windows(root)
            found[log] = (history_us(graph, root) if counted else None) or 0
        return found

    def _computes_windows(self, root: str) -> bool:
        """Return True if the rows of an output are computed over windows of rows.

        Rows of joins and look-ups are complete, regardless of when the query was created.
        """
        graph, behind = self.plan.graph, self.plan.graph.ancestors(root)
        inside = [graph[node].operator for node in self.plan.task.nodes if node in behind]
        return any(kind_of(operator).over_windows for operator in inside)

    @property
    def limit_s(self) -> float:
        """Return the processor seconds that one step of the current run may take."""
        cost, rows = self.statistics.cost, self.run.rows if self.run is not None else 0
        return max(STEP_S, _FAR_LONGER * (cost.overhead + cost.per_row * rows))

    def logs_behind(self, step: int) -> list[str]:
        """Return the output logs that depend on a step of the task and have not failed."""
        task, graph, left_out = self.plan.task, self.plan.graph, self.left_out
        node_id = task.nodes[step]
        return [log for root, log in task.outputs if log not in left_out and node_id in graph.ancestors(root)]

    def note_end(self, run: int, step: int | None, *, stuck: bool) -> None:
        """Record which step of a run was executing when the worker process ended."""
        if self.run is None or self.run.number != run:
            return
        self.run.blameless = stuck
        if step is None:
            return
        self.run.suspects = self.logs_behind(step)
        if stuck:
            self.run.stuck = (
                f"one call in a step took more than {self.limit_s:g} s of processor time for "
                f"{self.run.rows:,} rows, {FAR_LONGER}, and its worker was ended; look for an expression "
                "that takes long"
            )

    @property
    def state_folder(self) -> Path:
        return self._home.checkpoint_folder(self.id)

    def _restore(self, subtask: int) -> Restore:
        if not self.plan.task.stateful:
            return Restore(files=(), replay={}, newcomers={})
        checkpoint = self._field("checkpoint")
        files = checkpoint["files"]
        input_watermarks = self.input_watermarks()
        replay = {
            log: self._span(
                log,
                self._home.logs[log].epochs(
                    checkpoint["cursors"].get(log, -1), self.cursor(log), of_now=True
                ),
                input_watermarks.get(log, BEGINNING),
            )
            for log in self.plan.task.inputs
        }
        newcomers: Covers = {name: tuple(pair) for name, pair in self._field("newcomers").items()}
        successors, parts = self._field("successors"), self._field("parts_taken")
        replayed = replay if input_watermarks else {}
        begun = bool(self.fields.get("begun", False))
        if files and "placement" in checkpoint:
            before = former_subtasks(checkpoint["placement"])
            heavy = tuple(HeavyKey(*fields) for fields in checkpoint["heavy"])
            return Restore(
                files=tuple(files),
                replay=replayed,
                newcomers=newcomers,
                successors=successors,
                parts_taken=parts,
                before=before,
                heavy=heavy,
                first_rows=begun,
            )
        kept = tuple(files[subtask]) if files else ()
        return Restore(
            files=kept,
            replay=replayed,
            newcomers=newcomers,
            successors=successors,
            parts_taken=parts,
            first_rows=begun,
        )

    def _span(self, log: str, epochs: Sequence[Epoch], watermark: int) -> LogSpan:
        opened = self._home.logs[log]
        from_ts = self._field(BACKFILL).get("from")
        if all(epoch.min_ts is None or from_ts is None or epoch.min_ts >= from_ts for epoch in epochs):
            from_ts = None
        needed, whole = self._needed[log], self._home.streams.get(log.removesuffix(LATE), {}).get(WHOLE)
        if whole is not None and epochs and epochs[0].number > whole[0]:
            # A column was added to the stream after these rows were stored.
            needed = frozenset()
        return LogSpan(opened.folder, opened.columns, tuple(epochs), watermark, needed, from_ts)

    def is_repeated(self) -> bool:
        """Return True if a finished run must be repeated, and False if it can be committed.

        If all remaining outputs fail, nothing is committed, so that they can resume from the committed state
        after the cause is fixed. If only some outputs fail, the run is repeated once, and then the other
        outputs continue alone. If a step that several queries share failed, repeated runs with fewer queries
        find the failing queries.
        """
        assert self.run is not None
        errors = self.run.errors
        if self.searching or not errors:
            return self.searching
        overran = any(done.overran for done in self.run.done)
        left = [log for _, log in self.plan.task.outputs if log not in errors and log not in self.failed]
        # A step that exceeded its time limit would exceed the limit again.
        return not left or not (self.strikes or overran) or bool(self._shared_errors(self.run))

    def finish(self, now: int, change: Change) -> RunRecord:
        """Add the results of a finished run to a journal record. Return the statistics of the run."""
        run = self.run
        assert run is not None
        self.run, self.strikes, self._committed_run, self._cleared = None, 0, run.number, False
        self.warm_us = now if self.warm_us is None else self.warm_us
        failed = {**self.failed, **run.errors}
        record = self._record(run, failed)
        self.sheds.update(record.sheds)
        self.state_bytes = record.state_bytes
        self._load.add(record)
        self.statistics.add(record)
        self._rows_since_checkpoint += max(run.rows, 1)
        output_watermarks: dict[str, int] = {}
        for node_id, log in self.plan.task.outputs:
            parts = [done.written[log] for done in run.done if log in done.written]
            if parts and log not in failed:
                change.logs[log] = self._merge_parts(node_id, log, parts, run, now)
            marks = [done.watermarks[log] for done in run.done if log in done.watermarks]
            output_watermarks[log] = max(self.watermark(log), min(marks, default=BEGINNING))
        fields = change.tasks.setdefault(self.id, {})
        cursors = {log: new[-1].number for log, new in run.epochs.items() if new}
        fields["cursors"] = {**self._field("cursors"), **cursors}
        fields["input_watermarks"] = dict(run.input_watermarks)
        fields["output_watermarks"] = output_watermarks
        fields["due"] = list(earliest([due for done in run.done for due in done.due])) or None
        if self.begins:
            fields["begun"] = True
        if failed != self.failed:
            fields["failed"] = failed
        self._weigh_keys(run, fields)
        if latest := self._latest(run.done):
            fields["latest"] = latest
        if (load := self._load.plain()) is not None:
            fields["load"] = load
        files = [done.checkpoint for done in sorted(run.done, key=lambda done: done.subtask)]
        if self.plan.task.stateful and all(part is not None for part in files):
            # A checkpoint in progress is older than the checkpoint of this run.
            self.drop_checkpoint()
            self._note_checkpoint(fields, fields["cursors"], fields["input_watermarks"], files)
            self._rows_since_checkpoint = 0
            self._checkpointed_s = time.monotonic()
        return record

    def _record(self, run: TaskRun, failed: Mapping[str, str]) -> RunRecord:
        """Return the statistics of a finished run, before its commit."""
        outputs = [log for _, log in self.plan.task.outputs]
        arrivals: dict[str, Arrivals] = {}
        emitted: dict[str, int] = {}
        compared: dict[str, list[Comparisons]] = {}
        sheds: dict[str, list[AccuracyReport]] = {}
        for done in run.done:
            # The rows of a backfill (read of old rows) are counted, but their response times are meaningless.
            for log, pairs in () if self.catching_up else done.arrivals.items():
                arrivals[log] = (*arrivals.get(log, ()), *pairs)
            for node_id, rows in done.rows.items():
                emitted[node_id] = emitted.get(node_id, 0) + rows
            for node_id, comparisons in done.compared.items():
                compared.setdefault(node_id, []).append(comparisons)
            for node_id, report in done.sheds.items():
                sheds.setdefault(node_id, []).append(report)
        return RunRecord(
            task=self.id,
            read=run.rows_by_input(),
            written={log: sum(d.written[log].rows for d in run.done if log in d.written) for log in outputs},
            emitted=emitted,
            failed=failed,
            arrivals=arrivals,
            compared=compared,
            sheds={node_id: merge_reports(reports) for node_id, reports in sheds.items()},
            subtasks=[done.record for done in run.done],
            seconds=max(sum(done.seconds.values()) for done in run.done),
            python_s=sum(done.python_s for done in run.done),
            collecting_s=sum(done.collecting_s for done in run.done),
        )

    def record_of_failure(self) -> RunRecord:
        """Return the statistics of an abandoned run, after the failure was committed."""
        written = {log: 0 for _, log in self.plan.task.outputs}
        return RunRecord(task=self.id, written=written, failed=self.failed)

    def _heavy_keys(self) -> HeavyKeys | None:
        """Return the heavy keys (keys with very many rows) of a join that is partitioned by key.

        Return None if the plan does not allow the rows of one key on several subtasks.
        """
        plan = self.plan
        hybrid = {**self.fields["placement"], "kind": PlacementKind.HYBRID.value}
        if hybrid not in (one.plain() for one in placements_of(plan.task, plan.graph, self.subtasks)):
            return None
        longest = longest_us(
            window
            for node_id in plan.task.nodes
            if is_two_way(join := plan.graph[node_id].operator)
            for member in join.members
            for window in member.windows
        )
        joined = join_inputs_of(plan.task, plan.graph)
        sides = [SkewedSide.of(one.logs, one.window) for one in joined.inputs] if joined is not None else []
        return HeavyKeys(self.subtasks, longest, self.fields.get("heavy") or (), sides)

    def arrived(self, log: str, samples: Mapping[str, KeySample]) -> None:
        """Record the frequent keys among new rows of an input log.

        `samples` maps the id of each exchange (partitioning of the log) to its key sample."""
        exchange = self.plan.exchanges.get(log)
        if self._heavy is not None and exchange is not None and exchange.id in samples:
            self._heavy.arrived(log, samples[exchange.id])

    def _weigh_keys(self, run: TaskRun, fields: dict[str, Any]) -> None:
        if self._heavy is None:
            return
        for done in run.done:
            self._heavy.add(done.subtask, done.key_work)
        # The watermark of an input is at least the timestamp of its last row.
        self._heavy.decide(max(run.input_watermarks.values()) + 1)
        if self._heavy.plain() != list(map(tuple, self.fields.get("heavy") or ())):
            fields["heavy"] = self._heavy.plain()

    def _latest(self, parts: Sequence[RunDone]) -> dict[str, int]:
        """Map each graph node to the greatest row timestamp in all subtasks."""
        known = self._field("latest")
        return {
            node_id: max([known.get(node_id, ts), *(part.latest[node_id] for part in parts)])
            for node_id, ts in parts[0].latest.items()
        }

    def abandon(self, why: str | Mapping[str, str], change: Change) -> None:
        """Abandon the failed run of the task. The scheduler then retries the run.

        Each failure is a strike. After _STRIKES strikes the queries of the task are stopped, or only the
        queries of the step that failed. A step that was stuck or too slow counts as _STRIKES strikes, and so
        does a shared step that has failed before. If several queries may be the cause, repeated
        runs with fewer queries find the failing queries first. A full disk is no strike: the run waits for
        space. `why` is one reason, or a reason for each log.
        """
        run = self.run
        assert run is not None
        blameless = run.disk_full or (run.blameless and not run.stuck)
        overran = bool(run.stuck or any(done.overran for done in run.done))
        why = run.stuck or why
        if run.checkpoint_damaged and self._fall_back(change):
            _LOGGER.warning(
                "%s is restored from the checkpoint before its last one, and what came since is replayed: %s",
                self.id,
                why,
            )
            blameless = True
        self.run = None
        shared = self._shared_errors(run)
        decided = overran or (run.all_done and self.searching) or (shared and self.strikes)
        self.strikes += 0 if blameless else _STRIKES if decided else 1
        if self.strikes < _STRIKES:
            return
        self.strikes = 0
        if self._search is not None:
            self._judge(self._search, run, why, change)
            return
        left = [log for _, log in self.plan.task.outputs if log not in self.failed]
        suspects = shared or [log for log in left if log in run.suspects] or left
        by_query = not isinstance(why, str) and not shared
        if len(suspects) > 1 and not by_query and not self._cleared:
            self._search, self._failed_run = CulpritSearch(suspects), run
            return
        words = why if isinstance(why, str) else next(iter(why.values()))
        self._stop({log: words if isinstance(why, str) else why.get(log, words) for log in suspects}, change)

    def _shared_errors(self, run: TaskRun) -> list[str]:
        """Return the output logs that failed in a step which several queries share."""
        return [log for _, log in self.plan.task.outputs if any(log in done.shared for done in run.done)]

    def _judge(
        self, search: CulpritSearch, run: TaskRun, why: str | Mapping[str, str], change: Change
    ) -> None:
        """Process the result of a trial, a repetition of a failed run with only some queries.

        Stop the failing queries at the end of the search. If no query fails alone, the failed run is retried.
        """
        if run.all_done and not run.errors:
            search.passed()
        else:
            search.failed(why)
        if not search.over:
            return
        self._search, self._failed_run, self._cleared = None, None, not search.guilty
        if search.guilty:
            self._stop(search.guilty, change)

    def _stop(self, reasons: Mapping[str, str], change: Change) -> None:
        """Stop queries of the task. `reasons` maps the output log of each query to the reason."""
        fields = change.tasks.setdefault(self.id, {})
        fields["failed"] = {**self.failed, **reasons}
        if all(log in fields["failed"] for _, log in self.plan.task.outputs):
            # If only some outputs fail, the other outputs continue, so the failed outputs cannot resume.
            fields["resumable"] = sorted(reasons)

    def _fall_back(self, change: Change) -> bool:
        """Replace the last checkpoint by the previous checkpoint. Return False if that is impossible."""
        before = self._field(BEFORE)
        if not before or not all(self._home.logs[log].covers(at) for log, at in before["cursors"].items()):
            return False
        fields = fallback_fields(before)
        change.tasks.setdefault(self.id, {}).update(fields)
        self.drop_checkpoint()
        self._rows_since_checkpoint = max(self._rows_since_checkpoint, 1)
        return True

    def _merge_parts(
        self, node_id: str, log: str, parts: Iterable[Appended], run: TaskRun, now: int
    ) -> Appended:
        whole = merge_appended(parts)
        if isinstance(self.plan.graph[node_id].operator, QueryResults):
            # The response time of a result ends now, when the result becomes readable.
            whole.arrival_us = now
        else:
            # Rows of a derived stream are not results yet, so their oldest arrival time is kept.
            came = [moment for done in run.done for moment, _ in done.arrivals.get(log, ())]
            whole.arrival_us = min(came, default=now)
        return whole

    # -- checkpoints -----------------------------------------------------------------------------------

    @property
    def dirty(self) -> bool:
        """Return True if workers have state of the task that is not in a checkpoint."""
        return self.plan.task.stateful and self._rows_since_checkpoint > 0

    @property
    def is_checkpoint_outdated(self) -> bool:
        """Return True if input was read or queries were added after the last checkpoint."""
        written, fields = self._field("checkpoint"), self.fields
        return self.plan.task.stateful and (
            written["cursors"] != fields["cursors"]
            or written["input_watermarks"] != fields["input_watermarks"]
            or written.get("begun", False) != fields.get("begun", False)
            or any(self._field(name) for name in SINCE_CHECKPOINT)
            or "placement" in written
        )

    @property
    def writing(self) -> bool:
        """Return True while workers write a checkpoint of the task."""
        return self._begun is not None

    def checkpoint_due(self, now_s: float) -> bool:
        return self.dirty and not self.writing and self._checkpoint_age(now_s) >= 1

    def checkpoint_overdue(self, now_s: float) -> bool:
        """Return True if the task must be checkpointed before its next run."""
        return self.dirty and not self.writing and self._checkpoint_age(now_s) >= _OVERDUE

    def _checkpoint_age(self, now_s: float) -> float:
        """Return the age of the last checkpoint as a number of checkpoint intervals."""
        rows, seconds = self._rows_since_checkpoint, now_s - self._checkpointed_s
        return max(rows / CHECKPOINT_ROWS, seconds / CHECKPOINT_S)

    def begin_checkpoint(self) -> None:
        """Begin a checkpoint of the committed state of the task."""
        self._begun = PendingCheckpoint(
            self._committed_run,
            dict(self._field("cursors")),
            dict(self.input_watermarks()),
            self._rows_since_checkpoint,
            time.monotonic(),
            {},
        )

    def drop_checkpoint(self) -> None:
        """Discard the checkpoint of the task that is in progress."""
        self._begun = None

    def checkpoint_item(self, subtask: int) -> CheckpointTask:
        return CheckpointTask(self._mill, self.id, subtask, self._committed_run, self.state_folder)

    def finish_subtask_checkpoint(self, done: CheckpointDone, change: Change) -> None:
        """Record that a worker has written the checkpoint of a subtask.

        The last subtask completes the checkpoint of the task.
        """
        begun = self._begun
        if begun is None or done.run != begun.run:
            return
        begun.files[done.subtask] = done.files
        if len(begun.files) < self.subtasks:
            return
        self.drop_checkpoint()
        files = [begun.files[subtask] for subtask in range(self.subtasks)]
        fields = change.tasks.setdefault(self.id, {})
        self._note_checkpoint(fields, begun.cursors, begun.input_watermarks, files)
        self._rows_since_checkpoint -= begun.rows
        self._checkpointed_s = begun.begun_s

    def _note_checkpoint(
        self,
        fields: dict[str, Any],
        cursors: Mapping[str, int],
        input_watermarks: Mapping[str, int],
        files: Sequence[Any],
    ) -> None:
        since = {name: self._field(name) for name in SINCE_CHECKPOINT}
        fields[BEFORE] = {**self._field("checkpoint"), **since}
        fields["checkpoint"] = {
            "cursors": dict(cursors),
            "input_watermarks": dict(input_watermarks),
            "files": [list(f) for f in files],
        }
        if fields.get("begun", self.fields.get("begun", False)):
            fields["checkpoint"]["begun"] = True
        fields |= dict.fromkeys(SINCE_CHECKPOINT)
        if self._heavy is not None and self._heavy.forget(min(input_watermarks.values(), default=BEGINNING)):
            fields["heavy"] = self._heavy.plain() or None
        fields["statistics"] = self.statistics.plain()

    def _columns_needed(self) -> dict[str, frozenset[str]]:
        """Map each input log to the columns that the task reads.

        The set is empty for logs that store all columns.
        """
        read = columns_read(self.plan.graph)
        return {log: read.get(log, frozenset()) for log in self.plan.task.inputs}

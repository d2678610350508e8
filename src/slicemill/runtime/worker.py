"""Worker: reads sources and runs subtasks of tasks, inside a long-running Spark task.

A worker has in memory the programs of its subtasks with their state, the readers and intakes of its streams,
compiled plans, and open segments. All of this may be lost at any time, and is restored from a checkpoint and
the logs.

A checkpoint blocks the worker only while the worker takes a snapshot of a subtask's state in memory. A
background thread writes the snapshot while the worker continues with its next items. When the files are
complete, the thread sends a notice to the driver.
"""

from __future__ import annotations

import math
import pickle
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.columns.arrow_schema import ARRIVAL, TS
from slicemill.columns.merge import ties_of
from slicemill.columns.pace import paced
from slicemill.connectors.registry import open_readers
from slicemill.errors import SlicemillError
from slicemill.ingest.stream import SKIPPING, OpenStream, StreamPlan
from slicemill.kernels.kernel import python_seconds
from slicemill.metrics.due_times import Arrivals, set_due_times
from slicemill.metrics.profiling import gc_seconds, watch_gc
from slicemill.operators import state_codecs  # noqa: F401 - as in a worker: no snapshot imports them
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.partitioning import Exchange
from slicemill.runtime.messages import (
    CheckpointDone,
    CheckpointTask,
    Forget,
    Item,
    ItemDone,
    ItemFailed,
    LogSpan,
    Message,
    OutputLog,
    ReadDone,
    ReadStream,
    Reply,
    Restore,
    RunDone,
    RunTask,
    item_failure,
)
from slicemill.runtime.pipeline import TaskPlan, TaskProgram, unpack_plan
from slicemill.runtime.rescale import redistribute_state
from slicemill.runtime.shuffle import PartitionedRows, add_subtask_order, is_large, sample_keys
from slicemill.runtime.step_limit import StepLimit, StepRecord, current_step
from slicemill.runtime.workers.events import WorkerContext
from slicemill.storage.changes import Appended, merge_appended
from slicemill.storage.checkpoints import (
    CheckpointDamaged,
    EncodedStates,
    encode_states,
    read_checkpoint,
    write,
    write_checkpoint,
)
from slicemill.storage.filesystem import StorageFull, is_full
from slicemill.storage.log import read_epochs, read_stored_tables
from slicemill.storage.segments import SegmentWriters
from slicemill.time import wall_clock_us
from slicemill.types import Schema

_STAGES = ("run: open", "run: kernels", "run: write")
# Minimum number of rows of a result batch that is compressed.
# LZ4 then takes less time than writing the saved bytes.
_COMPRESSED_ROWS = 2_000
# Minimum and maximum interval in seconds at which the bytes of a subtask's state are counted.
# Between these limits, counting takes at most 1/_RUNS_PER_COUNT of the processor time of runs.
_COUNT_BYTES_S, _COUNT_BYTES_ANYHOW_S, _RUNS_PER_COUNT = 0.5, 30.0, 20

# Function that runs another function in the background.
InBackground: TypeAlias = Callable[[Callable[[], None]], None]


def in_thread(work: Callable[[], None]) -> None:
    """Run a function in a new daemon thread."""
    threading.Thread(target=work, name="slicemill checkpoint", daemon=True).start()


@dataclass(slots=True)
class LoadedSubtask:
    """Compiled steps and state of a subtask in memory. `run` is the last finished run."""

    plan: str
    run: int
    program: TaskProgram
    bytes: int = 0
    counted_s: float = -math.inf  # time at which the bytes of the state were counted
    counting_cpu_s: float = 0.0  # processor time of the last count of bytes
    ran_cpu_s: float = 0.0  # processor time of runs since the last count of bytes

    def goes_on_with(self, item: RunTask) -> bool:
        """Return True if the subtask in memory has the state that a run needs."""
        return (self.plan, self.run, self.program.failed) == (item.plan, item.after, item.failed)

    def count_bytes(self, now_s: float, *, at_once: bool) -> None:
        """Count the bytes of the subtask's state if a count is due."""
        since_s = now_s - self.counted_s
        cheap = self.ran_cpu_s >= _RUNS_PER_COUNT * self.counting_cpu_s or since_s >= _COUNT_BYTES_ANYHOW_S
        if at_once or (since_s >= _COUNT_BYTES_S and cheap):
            began = time.process_time()
            self.bytes, self.counted_s, self.ran_cpu_s = self.program.state_bytes(), now_s, 0.0
            self.counting_cpu_s = time.process_time() - began


@dataclass(slots=True)
class Worker:
    """Handler of the messages from the driver to a worker."""

    context: WorkerContext
    _writers: SegmentWriters
    _ordered: SegmentWriters  # writers of batches with the columns of the order by subtask
    subtasks: dict[tuple[str, str, int], LoadedSubtask] = field(default_factory=dict)
    streams: dict[tuple[str, str], OpenStream] = field(default_factory=dict)
    _plans: dict[str, bytes] = field(default_factory=dict)
    _stream_plans: dict[str, StreamPlan] = field(default_factory=dict)
    _sync: bool = False  # True to write files to disk (sync) before an answer
    _taken: LoadedSubtask | None = None
    _bytes_read: int = 0  # bytes of logs that the current subtask has read
    _record: StepRecord | None = None
    _message: int = 0
    _spreads: dict[tuple[object, ...], PartitionedRows] = field(default_factory=dict)
    in_background: InBackground = in_thread

    def __post_init__(self) -> None:
        watch_gc()

    def __call__(self, message: object) -> Reply:
        asked = cast(Message, message)
        self._plans.update(asked.plans)
        self._sync = asked.sync
        wall_clock_us.not_before(asked.now_us)
        self._message = asked.number
        self._open_record(asked.record)
        done = [self._do(item, index) for index, item in enumerate(asked.items)]
        reply = tuple(one for one in done if one is not None)
        self._spreads.clear()
        if asked.sync:
            self._writers.sync()
            self._ordered.sync()
        return reply

    def _open_record(self, path: Path | None) -> None:
        """Open the file in which this worker records its steps, if the driver may kill the process."""
        if path is None or not self.context.separate:
            return
        if self._record is None or self._record.path != path:
            # The file already has a step if Spark has restarted the task of a killed process.
            if current_step(path) is not None:
                raise SlicemillError("its process ended in a step")
            if self._record is not None:
                self._record.close()
                self._record = None
            # If steps cannot be recorded, a stuck worker is killed only after a longer time-out.
            with suppress(OSError):
                self._record = StepRecord(path)
        if self._record is not None:
            self._record.take_up()

    def _do(self, item: Item, index: int) -> ItemDone | None:
        try:
            if isinstance(item, RunTask):
                return self._run(item, index)
            if isinstance(item, ReadStream):
                return self._read(item)
            if isinstance(item, CheckpointTask):
                return self._checkpoint(item)
            self._forget(item)
            return None
        except MemoryError:
            raise
        except Exception as problem:
            return _describe_failure(item, problem)

    # -- tasks -----------------------------------------------------------------------------------------

    def _run(self, item: RunTask, index: int) -> RunDone:
        began, clock = time.process_time(), [time.perf_counter()]
        # The subtask is removed during its run, because a failed run leaves no valid state.
        program = self._program(item)
        self._bytes_read = 0
        tables = self._inputs(item.inputs, program, item)
        watermarks = {log: span.watermark for log, span in item.inputs.items()}
        clock.append(time.perf_counter())
        as_python, collecting = python_seconds(), gc_seconds()
        limit = StepLimit(item.limit_s, self._record, index, self._message)
        with limit.watching():
            outcome = program.run(tables, watermarks, item.dropping, item.latest, item.heavy, limit)
        clock.append(time.perf_counter())
        written, arrivals, sampled = {}, {}, {}
        for log, made in outcome.tables.items():
            if log in item.outputs and item.outputs[log].after_us is not None:
                made = made.filter(pc.greater(made.column(TS), pa.scalar(item.outputs[log].after_us)))
            if made.num_rows and log in item.outputs:
                table = set_due_times(made, item.moments, item.now_us)
                written[log] = self._append(item.outputs[log], table, program.schema_of(log), compress=True)
                arrivals[log] = _arrivals(table)
                if keys := sample_keys(table, item.outputs[log].exchanges, program.schema_of(log)):
                    sampled[log] = keys
        files = self._write_state(item.state_folder, program) if item.checkpoint else None
        subtask = self._keep(item, program, time.process_time() - began)
        clock.append(time.perf_counter())
        return RunDone(
            task=item.task,
            subtask=item.subtask,
            run=item.run,
            written=written,
            watermarks=outcome.watermarks,
            errors=outcome.errors,
            rows=outcome.rows,
            arrivals=arrivals,
            due=outcome.due,
            latest=program.latest,
            sheds=program.sheds,
            state_bytes=subtask.bytes,
            cpu_s=time.process_time() - began,
            seconds=_stages(_STAGES, clock),
            checkpoint=files,
            rows_in=sum(table.num_rows for table in tables.values()),
            bytes_read=self._bytes_read,
            compared=program.compared,
            python_s=python_seconds() - as_python,
            key_work=program.key_work,
            key_samples=sampled,
            collecting_s=gc_seconds() - collecting,
            overran=outcome.overran,
            shared=outcome.shared,
        )

    def _keep(self, item: RunTask, program: TaskProgram, ran_cpu_s: float) -> LoadedSubtask:
        """Keep the state of a subtask after its run. Count the bytes of the state if that is due."""
        known = self._taken or LoadedSubtask(item.plan, item.run, program)
        known.run = item.run
        known.ran_cpu_s += ran_cpu_s
        known.count_bytes(time.monotonic(), at_once=bool(item.dropping))
        self.subtasks[item.mill, item.task, item.subtask] = known
        return known

    def _program(self, item: RunTask) -> TaskProgram:
        known = self._taken = self.subtasks.pop((item.mill, item.task, item.subtask), None)
        if known is not None and known.goes_on_with(item):
            return known.program
        self._taken = None
        if item.restore is None:
            raise SlicemillError(f"subtask {item.subtask} of {item.task} is not here")
        plan = unpack_plan(self._plans[item.plan])
        states = self._restore_state(item, item.restore, plan.without(item.failed))
        renewed = replace(
            plan,
            newcomers=item.restore.newcomers,
            successors=item.restore.successors,
            parts_taken=item.restore.parts_taken,
        )
        program = TaskProgram(renewed, states, item.subtask, item.failed)
        if item.restore.replay:
            spans = item.restore.replay
            watermarks = {log: span.watermark for log, span in spans.items()}
            inputs = self._inputs(spans, program, item)
            program.run(
                inputs,
                watermarks,
                latest=item.latest,
                heavy=item.heavy,
                first_rows=item.restore.first_rows,
            )
        return program

    def _restore_state(self, item: RunTask, restore: Restore, plan: TaskPlan) -> dict[str, object]:
        """Map each graph node to the state of a subtask at its checkpoint."""
        if restore.before is None:
            return read_checkpoint(item.state_folder, restore.files, whole=True)
        kept = [read_checkpoint(item.state_folder, files, whole=True) for files in restore.files]
        return redistribute_state(plan, item.subtask, restore.before, restore.heavy, kept)

    def _inputs(
        self, spans: Mapping[str, LogSpan], program: TaskProgram, item: RunTask
    ) -> dict[str, pa.Table]:
        """Map each input log to the rows that a subtask must read."""
        found = {}
        for log, span in spans.items():
            exchange = program.plan.exchanges.get(log)
            if not any(epoch.rows for epoch in span.epochs):
                found[log] = program.empty_input(log)
            elif exchange is None:
                found[log] = read_epochs(span.folder, span.columns, span.epochs, span.needed)
                self._bytes_read += sum(epoch.bytes for epoch in span.epochs)
            else:
                spread = self._spread(span, exchange, item.heavy)
                found[log] = spread.part(item.subtask)
                self._bytes_read += spread.take_bytes()
            if span.from_ts is not None:
                found[log] = found[log].filter(pc.greater_equal(found[log].column(TS), span.from_ts))
        return found

    def _spread(self, span: LogSpan, exchange: Exchange, heavy: tuple[HeavyKey, ...]) -> PartitionedRows:
        """Return rows of a log, partitioned by subtask. All runs of a message share the result."""
        key = (exchange, heavy, span.folder, tuple(epoch.number for epoch in span.epochs), span.needed)
        if key not in self._spreads:
            stored = read_stored_tables(span.folder, span.epochs, span.needed)
            self._spreads[key] = PartitionedRows(exchange, span.columns, stored, heavy)
        return self._spreads[key]

    def _checkpoint(self, item: CheckpointTask) -> CheckpointDone | None:
        """Write a checkpoint of a subtask: take a snapshot of its state and write it to files.

        Return None if a background thread writes the snapshot. The thread then notifies the driver.
        """
        subtask = self.subtasks.get((item.mill, item.task, item.subtask))
        if subtask is None or subtask.run != item.run:
            raise SlicemillError(f"subtask {item.subtask} of {item.task} is not here as of run {item.run}")
        if not self.context.resident:
            files = self._write_state(item.state_folder, subtask.program)
            return CheckpointDone(item.mill, item.task, item.subtask, item.run, files)
        snapshot, durable = encode_states(subtask.program.states), self._sync
        self.in_background(lambda: self.context.notify(_write_snapshot(item, snapshot, durable=durable)))
        return None

    def _write_state(self, folder: Path, program: TaskProgram) -> tuple[Any, ...]:
        return tuple(write_checkpoint(folder, program.states, durable=self._sync))

    # -- streams ---------------------------------------------------------------------------------------

    def _read(self, item: ReadStream) -> ReadDone:
        began, clock = time.process_time(), [time.perf_counter()]
        stream = self._opened(item)
        if item.flush:
            found = stream.flush(item.now_us)
        elif item.replay is not None:
            found = stream.replay(item.replay, item.announced)
        elif item.handed is not None:
            found = stream.take(item.handed, item.announced)
        else:
            stream.commit(item.offsets)
            found = stream.read(item.offsets, item.announced, item.limit_rows, item.now_us)
        clock.append(time.perf_counter())
        written, sampled = {}, {}
        for role, folder in stream.plan.logs.items():
            output = OutputLog(folder, stream.plan.exchanges if role == "rows" else ())
            tables = [getattr(part, role) for part in found.admitted]
            schema = stream.plan.stream.schema
            parts = [self._append(output, table, schema) for table in tables if table.num_rows]
            if parts:
                written[role] = merge_appended(parts)
            if parts and output.exchanges:
                longest = max(tables, key=lambda table: table.num_rows)
                sampled = sample_keys(longest, output.exchanges, schema)
        clock.append(time.perf_counter())
        return ReadDone(
            stream=item.stream,
            offsets={**item.offsets, **found.offsets},
            written=written,
            progress=(found.admitted[-1].progress | {SKIPPING: found.skipping or None})
            if found.admitted
            else {},
            more=found.more,
            again_us=found.again_us,
            ended=found.ended,
            handed=item.handed is not None,
            rows_read=found.rows,
            moments=tuple(moment for part in found.admitted for moment in part.moments),
            rows_unneeded=found.unneeded,
            cpu_s=time.process_time() - began,
            seconds=_stages(("read: source and intake", "read: write"), clock),
            key_samples=sampled,
            warning=found.warning,
        )

    def _opened(self, item: ReadStream) -> OpenStream:
        key = (item.mill, item.stream)
        plan = self._stream_plans.get(item.plan)
        if plan is None:
            plan = self._stream_plans[item.plan] = cast(StreamPlan, pickle.loads(self._plans[item.plan]))
        known = self.streams.get(key)
        if known is not None and not item.first:
            if known.plan != plan:
                known.replan(plan)
            return known
        if known is not None:
            known.close()
        notify = partial(self.context.notify, item.stream)
        self.streams[key] = OpenStream(plan, item.progress, item.held, open_readers, notify, item.now_us)
        return self.streams[key]

    def _forget(self, item: Forget) -> None:
        everything = not item.tasks and not item.streams and not item.subtasks
        for mill, task, subtask in list(self.subtasks):
            named = task in item.tasks or (task, subtask) in item.subtasks
            if mill == item.mill and (everything or named):
                del self.subtasks[mill, task, subtask]
        for mill, stream in list(self.streams):
            if mill == item.mill and (everything or stream in item.streams):
                self.streams.pop((mill, stream)).close()

    # -- appending to logs -----------------------------------------------------------------------------

    def _append(
        self, output: OutputLog, table: pa.Table, schema: Schema, *, compress: bool = False
    ) -> Appended:
        if is_large(table.num_rows, output.exchanges) and not ties_of(table):
            # The batch is not compressed, so that subtasks can map their rows into memory.
            stored = add_subtask_order(table, output.exchanges, schema)
            extent = self._ordered.append(output.folder, stored)
        else:
            compress = compress and table.num_rows >= _COMPRESSED_ROWS
            extent = self._writers.append(output.folder, table, compress=compress)
        ts = table.column(0)
        arrival = pc.min(table.column(ARRIVAL)).as_py()
        return Appended([extent], ts[0].as_py(), ts[-1].as_py(), arrival)


def make(context: WorkerContext) -> Worker:
    """Create the message handler of a worker process."""
    return Worker(context, SegmentWriters(context.name), SegmentWriters(f"{context.name}.ordered"))


def _write_snapshot(item: CheckpointTask, snapshot: EncodedStates, *, durable: bool) -> CheckpointDone:
    """Write the snapshot of a subtask's state to files. Return the notice for the driver."""
    try:
        with paced():
            files, failed = write(item.state_folder, snapshot, durable=durable), None
    except Exception as problem:
        files, failed = [], _describe_failure(item, problem)
    return CheckpointDone(item.mill, item.task, item.subtask, item.run, tuple(files), failed)


def _describe_failure(item: Item, problem: Exception) -> ItemFailed | None:
    words = str(problem) if isinstance(problem, SlicemillError) else f"{type(problem).__name__}: {problem}"
    disk_full = isinstance(problem, StorageFull)
    if isinstance(problem, OSError) and is_full(problem):
        words, disk_full = (
            f"no space is left ({problem}); free some, nothing is lost and work goes on then",
            True,
        )
    return item_failure(
        item,
        words,
        traceback.format_exc(),
        disk_full=disk_full,
        checkpoint_damaged=isinstance(problem, CheckpointDamaged),
    )


def _stages(names: Sequence[str], clock: Sequence[float]) -> dict[str, float]:
    """Map each stage to its duration. `clock` has the times at which stages began or ended."""
    return {name: after - before for name, (before, after) in zip(names, pairwise(clock), strict=True)}


def _arrivals(table: pa.Table) -> Arrivals:
    arrivals = table.column(ARRIVAL).to_numpy()
    # In the usual case all rows have the same arrival time.
    if (first := arrivals.min()) == arrivals.max():
        return ((int(first), len(arrivals)),)
    moments, rows = np.unique(arrivals, return_counts=True)
    return tuple(zip(moments.tolist(), rows.tolist(), strict=True))

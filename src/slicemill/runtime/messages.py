"""Protocol between driver and workers: messages with work items, and their answers.

Both processes run the same version and messages are never stored. So messages are pickled without a schema.
Persistent state is in the journal (`storage.changes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from slicemill.ingest.stream import Announced, HandedRows
from slicemill.metrics.due_times import Arrivals, TimeMoments
from slicemill.metrics.run_record import SubtaskRecord
from slicemill.operators.alignment import Dues
from slicemill.operators.join.heavy_keys import NO_WORK, KeySample, KeyWork
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.subtask import HeavyKey
from slicemill.plan.partitioning import Exchange, FormerSubtasks
from slicemill.scheduling.balance import SubtaskId
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Comparisons, SheddingDecision
from slicemill.storage.changes import Appended
from slicemill.storage.log import Epoch
from slicemill.storage.segments import Extent

# Frequent keys of rows written to logs: log -> id of an exchange (partitioning) -> key sample.
KeySamples: TypeAlias = Mapping[str, Mapping[str, KeySample]]


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Epochs (commits) of a log that a run of a task reads, and the watermark after these epochs.

    Rows before `from_ts`, if given, are ignored.
    """

    folder: Path
    columns: pa.Schema
    epochs: tuple[Epoch, ...]
    watermark: int
    needed: frozenset[str]
    from_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Checkpoint of a subtask's state, and the epochs (commits of logs) to replay after the checkpoint.

    Results of the replay are discarded, because they are already committed. `newcomers` are queries added
    since the checkpoint. `successors` maps a query to the replaced query whose state it took over, and
    `parts_taken` has the calls or columns that provide this state. If the task was rescaled since the
    checkpoint, `before` and `heavy` are the subtasks and heavy keys at the checkpoint, and `files` are
    those of all subtasks. `first_rows` is True if the results that exist before the first row are already
    committed.
    """

    files: tuple[Any, ...]
    replay: Mapping[str, LogSpan]
    newcomers: Covers
    successors: Mapping[str, str] = field(default_factory=dict)
    parts_taken: Mapping[str, Sequence[int]] = field(default_factory=dict)
    before: FormerSubtasks | None = None
    heavy: tuple[HeavyKey, ...] = ()
    first_rows: bool = False


@dataclass(frozen=True, slots=True)
class OutputLog:
    """Log to which a run appends rows, and the exchanges (partitionings) of its readers.

    Rows up to `after_us`, if given, are not appended, because their windows are incomplete.
    """

    folder: Path
    exchanges: tuple[Exchange, ...] = ()
    after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """Request that a worker runs one subtask of a task over new epochs (commits) of its inputs.

    `restore` is set if the worker does not hold the subtask in memory. `moments` are the times at which the
    source streams reached timestamps. `now_us` is the current time of the engine.
    """

    mill: str
    task: str
    subtask: int
    plan: str  # digest of the task's plan
    run: int
    after: int  # number of the last committed run, after which the subtask must have its state
    inputs: Mapping[str, LogSpan]
    outputs: Mapping[str, OutputLog]
    state_folder: Path
    moments: tuple[TimeMoments, ...]
    now_us: int
    # graph node -> greatest row timestamp in all subtasks
    latest: Mapping[str, int] = field(default_factory=dict)
    dropping: Mapping[str, SheddingDecision] = field(default_factory=dict)
    heavy: tuple[HeavyKey, ...] = ()  # keys with many rows, which go to all subtasks, even in a replay
    restore: Restore | None = None
    checkpoint: bool = False  # True to write a checkpoint after the run
    # output logs that the run omits, with the steps and state that only they need
    failed: frozenset[str] = frozenset()
    limit_s: float = math.inf  # processor seconds after which a step is interrupted


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """Request that a worker writes a checkpoint of the state that a subtask has after a run.

    A resident worker (one that runs all the time) takes a snapshot and writes it in the background, while it
    continues with its next items. In this case the answer has no entry for the checkpoint, and the worker
    sends `CheckpointDone` as a notice.
    """

    mill: str
    task: str
    subtask: int
    run: int
    state_folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStream:
    """Request that a worker reads rows of a stream's source and writes them to the stream's log.

    The rows are those after `offsets`. `progress` has the journal fields of the stream, for a worker that has
    not read the stream before. `held` are the rows that are held back for sorting.
    """

    mill: str
    stream: str
    plan: str
    offsets: Mapping[str, Any]
    announced: Announced
    limit_rows: int
    # True if this worker has not read the stream before, or if its last read failed
    first: bool
    progress: Mapping[str, Any]
    held: tuple[Extent, ...] = ()
    handed: HandedRows | None = None
    flush: bool = False  # True at the end of the stream, to release all held-back rows
    now_us: int | None = None  # current time of the engine, if its clock is not the wall clock
    replay: HandedRows | None = None  # rows to process again, instead of reading the source


@dataclass(frozen=True, slots=True)
class Forget:
    """Request that a worker releases tasks, subtasks and streams from memory, or all if none is named."""

    mill: str
    tasks: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    subtasks: tuple[SubtaskId, ...] = ()


Item: TypeAlias = RunTask | CheckpointTask | ReadStream | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Work items of a worker in execution order, and the pickled plans that the worker lacks."""

    items: tuple[Item, ...]
    plans: Mapping[str, bytes] = field(default_factory=dict)
    sync: bool = False  # with durability 'machine', written files must survive a power failure
    now_us: int = 0  # time of the driver; the worker's clock must not be behind this time
    number: int = 0  # number of messages to this worker so far
    # file in which a worker with its own process records its current step
    record: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDone:
    task: str
    subtask: int
    run: int
    written: Mapping[str, Appended]
    watermarks: Mapping[str, int]  # output log -> watermark
    errors: Mapping[str, str]
    rows: Mapping[str, int]  # graph node -> number of rows that it emitted
    arrivals: Mapping[str, Arrivals]
    due: Dues
    # Greatest row timestamp of each graph node that emits rows at the end of input.
    latest: Mapping[str, int]
    sheds: Mapping[str, AccuracyReport]
    state_bytes: int
    cpu_s: float
    seconds: Mapping[str, float]
    checkpoint: tuple[Any, ...] | None = None
    rows_in: int = 0
    bytes_read: int = 0  # bytes of logs that this subtask has read
    compared: Mapping[str, Comparisons] = field(default_factory=dict)  # join -> comparisons by age of rows
    python_s: float = 0.0  # seconds of cpu_s in kernels (compiled loops) that are not compiled yet
    key_work: KeyWork = NO_WORK
    key_samples: KeySamples = field(default_factory=dict)
    collecting_s: float = 0.0  # seconds of cpu_s in garbage collection
    overran: frozenset[str] = frozenset()  # output logs of queries with a step that exceeded its time limit
    # Output logs of queries with an error in a step that several queries share.
    shared: frozenset[str] = frozenset()

    @property
    def record(self) -> SubtaskRecord:
        """Return the amount of work that the subtask did in the run."""
        return SubtaskRecord(
            subtask=self.subtask,
            rows=self.rows_in,
            pairs=sum(found.total for found in self.compared.values()),
            cpu_s=self.cpu_s,
            bytes_read=self.bytes_read,
            state_bytes=self.state_bytes,
        )


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """Report that a subtask's checkpoint is written, or why it could not be written (`failed`)."""

    mill: str
    task: str
    subtask: int
    run: int
    files: tuple[Any, ...] = ()
    failed: ItemFailed | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDone:
    stream: str
    offsets: Mapping[str, Any]
    written: Mapping[str, Appended]  # role of a log (rows, errors, late, held) -> written rows
    progress: Mapping[str, Any]
    more: bool
    again_us: int | None
    ended: bool
    handed: bool  # True if rows that the driver supplied were read
    rows_read: int
    moments: tuple[tuple[int, int], ...]  # (timestamp, time at which the watermark reached it)
    rows_unneeded: int  # number of rows in rows_read that no query needs and that are not stored
    cpu_s: float
    seconds: Mapping[str, float]
    # Exchange id -> sample of written rows.
    key_samples: Mapping[str, KeySample] = field(default_factory=dict)
    warning: str | None = None  # problem of the source that does not prevent reading from the source


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailed:
    """Report that a run, read or checkpoint failed. The worker has released the state."""

    item: str  # "run", "read" or "checkpoint"
    name: str  # name of the failed task or stream
    error: str
    trace: str = ""
    disk_full: bool = False
    checkpoint_damaged: bool = False  # True if the checkpoint to restore cannot be read


ItemDone: TypeAlias = RunDone | CheckpointDone | ReadDone | ItemFailed
Reply: TypeAlias = tuple[ItemDone, ...]


def item_failure(
    item: Item, why: str, trace: str = "", *, disk_full: bool = False, checkpoint_damaged: bool = False
) -> ItemFailed | None:
    """Return the report of a failed run, read or checkpoint. A failed `Forget` has no report."""
    if isinstance(item, ReadStream):
        return ItemFailed(item="read", name=item.stream, error=why, trace=trace, disk_full=disk_full)
    if isinstance(item, Forget):
        return None
    kind = "run" if isinstance(item, RunTask) else "checkpoint"
    return ItemFailed(
        item=kind,
        name=item.task,
        error=why,
        trace=trace,
        disk_full=disk_full,
        checkpoint_damaged=checkpoint_damaged,
    )

"""Protocol between driver and workers: messages with items, and answers.

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

# Frequent keys of rows written to logs: log -> exchange -> sample.
KeySamples: TypeAlias = Mapping[str, Mapping[str, KeySample]]


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Epochs of a log that a run reads, and the watermark after them.

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
    """Checkpoint of a subtask's state, and the epochs to replay after it.

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
    """Log to which a run appends rows, and its readers' exchanges.

    Rows up to `after_us`, if given, are not appended, because their windows are incomplete.
    """

    folder: Path
    exchanges: tuple[Exchange, ...] = ()
    after_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTask:
    """Run one subtask of a task over new epochs.

    `restore` is set if the worker does not hold the subtask in memory. `moments` are the times at which the
    source streams reached timestamps. `now_us` is the current time of the mill.
    """

    mill: str
    task: str
    subtask: int
    plan: str  # digest of its UnitPlan
    run: int
    after: int  # last committed run; the subtask must have the state after it
    inputs: Mapping[str, LogSpan]
    outputs: Mapping[str, OutputLog]
    state_folder: Path
    moments: tuple[TimeMoments, ...]
    now_us: int
    latest: Mapping[str, int] = field(default_factory=dict)  # greatest row timestamp of all subtasks, by node
    dropping: Mapping[str, SheddingDecision] = field(default_factory=dict)
    heavy: tuple[HeavyKey, ...] = ()  # keys whose rows go to all subtasks, also in a replay
    restore: Restore | None = None
    checkpoint: bool = False  # include a checkpoint in the answer
    failed: frozenset[str] = frozenset()  # outputs to omit, with the steps and state that only they need
    limit_s: float = math.inf  # processor seconds after which a step is interrupted and its queries fail


@dataclass(frozen=True, slots=True)
class CheckpointTask:
    """Write the state of a subtask as of a run.

    A resident worker takes a snapshot and writes it in the background, while it continues with its next
    items. In this case the answer has no entry for the item, and the worker sends `CheckpointDone` as a
    notice.
    """

    mill: str
    task: str
    subtask: int
    run: int
    state_folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStream:
    """Read a stream's source from `offsets` on, and admit the rows.

    `progress` has the journal fields of the stream, for a worker that has not read the stream before. `held`
    are the rows that are held back for sorting.
    """

    mill: str
    stream: str
    plan: str
    offsets: Mapping[str, Any]
    announced: Announced
    limit_rows: int
    first: bool  # this worker has not read the stream before, or its last read failed
    progress: Mapping[str, Any]
    held: tuple[Extent, ...] = ()
    handed: HandedRows | None = None
    flush: bool = False  # end of the stream: release all held-back rows
    now_us: int | None = None  # the mill's time, if that is not the wall clock
    replay: HandedRows | None = None  # rows to admit again, instead of reading the source


@dataclass(frozen=True, slots=True)
class Forget:
    """Release tasks, subtasks and streams from memory; without names, everything."""

    mill: str
    tasks: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    subtasks: tuple[SubtaskId, ...] = ()


Item: TypeAlias = RunTask | CheckpointTask | ReadStream | Forget


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Items in execution order, and the pickled plans that the worker lacks."""

    items: tuple[Item, ...]
    plans: Mapping[str, bytes] = field(default_factory=dict)
    sync: bool = False  # durability 'machine': written files must survive a power failure
    now_us: int = 0  # time of the sender; the worker's clock must not be behind
    number: int = 0  # counts the messages to this worker
    record: Path | None = None  # file in which a worker with its own process records the current step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDone:
    task: str
    subtask: int
    run: int
    written: Mapping[str, Appended]
    watermarks: Mapping[str, int]  # of the outputs
    errors: Mapping[str, str]
    rows: Mapping[str, int]  # number emitted by each node
    arrivals: Mapping[str, Arrivals]
    due: Dues
    latest: Mapping[str, int]  # greatest row timestamp of nodes that emit at the end of input
    sheds: Mapping[str, AccuracyReport]
    state_bytes: int
    cpu_s: float
    seconds: Mapping[str, float]
    checkpoint: tuple[Any, ...] | None = None
    rows_in: int = 0
    bytes_read: int = 0  # from logs, by this subtask
    compared: Mapping[str, Comparisons] = field(default_factory=dict)  # by node of a join, and by age of rows
    python_s: float = 0.0  # part of cpu_s, in kernels that are not compiled yet
    key_work: KeyWork = NO_WORK
    key_samples: KeySamples = field(default_factory=dict)
    collecting_s: float = 0.0  # part of cpu_s, in garbage collection
    overran: frozenset[str] = frozenset()  # outputs with an error of a step that exceeded its time limit
    shared: frozenset[str] = frozenset()  # outputs with an error of a step that several outputs share

    @property
    def record(self) -> SubtaskRecord:
        """Return the work of the subtask."""
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
    """Report that a subtask's state is written, or why not (`failed`)."""

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
    written: Mapping[str, Appended]  # by role: rows, errors, late, held
    progress: Mapping[str, Any]
    more: bool
    again_us: int | None
    ended: bool
    handed: bool  # the rows of the driver are admitted
    rows_read: int
    moments: tuple[tuple[int, int], ...]  # timestamps that the watermark has reached, each with its time
    rows_unneeded: int  # part of rows_read that no query needs; not stored
    cpu_s: float
    seconds: Mapping[str, float]
    key_samples: Mapping[str, KeySample] = field(default_factory=dict)  # of the written rows, by exchange
    warning: str | None = None  # problem of the source that does not prevent reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailed:
    """Report that an item failed; the worker has released its state."""

    item: str  # "run", "read" or "checkpoint"
    name: str  # of the task or stream
    error: str
    trace: str = ""
    disk_full: bool = False
    checkpoint_damaged: bool = False  # the restored checkpoint cannot be read


ItemDone: TypeAlias = RunDone | CheckpointDone | ReadDone | ItemFailed
Reply: TypeAlias = tuple[ItemDone, ...]


def item_failure(
    item: Item, why: str, trace: str = "", *, disk_full: bool = False, checkpoint_damaged: bool = False
) -> ItemFailed | None:
    """Return the report of a failed item, or None for `Forget`."""
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

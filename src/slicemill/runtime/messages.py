"""Protocol between dispatcher and workers: messages with work items, and answers.

Messages exist for milliseconds between processes of one version, so they are pickled without a schema.
They are never stored; persistent state is in the journal (`storage.changes`).
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
from slicemill.operators.alignment import Dues
from slicemill.operators.cell import HeavyKey
from slicemill.operators.join.heavy_keys import NO_WORK, KeySample, KeyWork
from slicemill.operators.join.slices.coverage import Covers
from slicemill.plan.partitioning import Exchange, FormerCells
from slicemill.scheduling.balance import CellId
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Comparisons, SheddingDecision
from slicemill.storage.changes import Appended
from slicemill.storage.log import Epoch
from slicemill.storage.segments import Extent

# For rows written to a log: log -> exchange -> frequent keys.
KeySamples: TypeAlias = Mapping[str, Mapping[str, KeySample]]


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Epochs of a log that a run reads, and its watermark.

    The watermark is that of the log after these epochs. Rows before `from_ts`, if given, are ignored.
    """

    folder: Path
    columns: pa.Schema
    epochs: tuple[Epoch, ...]
    watermark: int
    needed: frozenset[str]
    from_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """Checkpoint of a cell's state, and the epochs to replay after it.

    Results of the replay are discarded, because they are already committed. `newcomers` are queries added
    since the checkpoint; `successors` are queries that took over the state of replaced ones, by name, and
    `parts_taken` are the calls or columns that provide it. If the placement has changed, `before` and `heavy`
    are the cells and heavy keys at the checkpoint, and `files` are those of all cells. `first_rows` is True
    if the results before the first row are already committed.
    """

    files: tuple[Any, ...]
    replay: Mapping[str, LogSpan]
    newcomers: Covers
    successors: Mapping[str, str] = field(default_factory=dict)
    parts_taken: Mapping[str, Sequence[int]] = field(default_factory=dict)
    before: FormerCells | None = None
    heavy: tuple[HeavyKey, ...] = ()
    first_rows: bool = False


@dataclass(frozen=True, slots=True)
class OutputLog:
    """Log to which a run appends rows, and its readers' exchanges.

    Rows up to `after_us`, if given, are not appended, because they are of incomplete windows.
    """

    folder: Path
    exchanges: tuple[Exchange, ...] = ()
    after_us: int | None = None


@dataclass(frozen=True, slots=True)
class RunUnit:
    """Run one cell of a unit over new epochs.

    `restore` is set if the worker does not hold the cell. `moments` are the times at which the source streams
    reached their timestamps; `now_us` is the mill's time.
    """

    mill: str
    unit: str
    cell: int
    plan: str  # digest of its UnitPlan
    run: int
    after: int  # the last committed run, whose state the cell must have
    inputs: Mapping[str, LogSpan]
    outputs: Mapping[str, OutputLog]
    state_folder: Path
    moments: tuple[TimeMoments, ...]
    now_us: int
    latest: Mapping[str, int] = field(default_factory=dict)  # greatest row timestamp of all cells, by node
    dropping: Mapping[str, SheddingDecision] = field(default_factory=dict)
    heavy: tuple[HeavyKey, ...] = ()  # heavy keys, whose rows go to all cells, also in a replay
    restore: Restore | None = None
    checkpoint: bool = False  # include a checkpoint in the answer
    failed: frozenset[str] = frozenset()  # outputs to leave out, with the steps and state of their queries
    limit_s: float = math.inf  # processor seconds of a step after which its queries fail


@dataclass(frozen=True, slots=True)
class CheckpointUnit:
    """Write the state of a cell as of a run.

    A resident worker takes a snapshot and writes it in the background while it runs the next items. Then the
    answer has no entry for this item, and the worker sends `CheckpointDone` as a notice.
    """

    mill: str
    unit: str
    cell: int
    run: int
    state_folder: Path


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Read a stream's source from `offsets` on and admit the rows.

    `progress` contains the stream's fields in the journal, for a worker that reads it for the first time;
    `held` are the rows that are held back for sorting.
    """

    mill: str
    stream: str
    plan: str
    offsets: Mapping[str, Any]
    announced: Announced
    limit_rows: int
    first: bool  # this worker has not read the stream in this mill yet, or its last read failed
    progress: Mapping[str, Any]
    held: tuple[Extent, ...] = ()
    handed: HandedRows | None = None
    flush: bool = False  # the stream has ended: release all rows that are held back
    now_us: int | None = None  # the mill's time, unless it is the wall clock
    replay: HandedRows | None = None  # rows to admit again; the source is not read


@dataclass(frozen=True, slots=True)
class Forget:
    """Release units, cells and streams from memory, by default all."""

    mill: str
    units: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    cells: tuple[CellId, ...] = ()


Item: TypeAlias = RunUnit | CheckpointUnit | ReadStream | Forget


@dataclass(frozen=True, slots=True)
class Message:
    """Items in execution order, and the pickled plans that are missing."""

    items: tuple[Item, ...]
    plans: Mapping[str, bytes] = field(default_factory=dict)
    sync: bool = False  # durability 'machine': written files must survive a power failure
    now_us: int = 0  # time of the sender; the clock of the worker must not be earlier
    number: int = 0  # of the messages to this worker
    record: Path | None = None  # file in which a separate process records its current step


@dataclass(frozen=True, slots=True)
class RunDone:
    unit: str
    cell: int
    run: int
    written: Mapping[str, Appended]
    watermarks: Mapping[str, int]  # of the outputs
    errors: Mapping[str, str]
    rows: Mapping[str, int]  # emitted by each node
    arrivals: Mapping[str, Arrivals]
    due: Dues
    latest: Mapping[str, int]  # greatest row timestamp of nodes that emit at the end of input
    sheds: Mapping[str, AccuracyReport]
    state_bytes: int
    cpu_s: float
    seconds: Mapping[str, float]
    checkpoint: tuple[Any, ...] | None = None
    rows_in: int = 0
    bytes_read: int = 0  # from logs, by this cell
    compared: Mapping[str, Comparisons] = field(default_factory=dict)  # by node of a join and age of rows
    python_s: float = 0.0  # part of cpu_s, in kernels that are not compiled yet
    key_work: KeyWork = NO_WORK
    key_samples: KeySamples = field(default_factory=dict)
    collecting_s: float = 0.0  # part of cpu_s, in garbage collection
    overran: frozenset[str] = frozenset()  # outputs with errors of steps that took too long
    shared: frozenset[str] = frozenset()  # outputs with an error of a step that they share

    @property
    def pairs(self) -> int:
        return sum(found.total for found in self.compared.values())


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """The state of a cell is written, unless `failed` is set."""

    mill: str
    unit: str
    cell: int
    run: int
    files: tuple[Any, ...] = ()
    failed: ItemFailed | None = None


@dataclass(frozen=True, slots=True)
class ReadDone:
    stream: str
    offsets: Mapping[str, Any]
    written: Mapping[str, Appended]  # by role: rows, errors, late, held
    progress: Mapping[str, Any]
    more: bool
    again_us: int | None
    ended: bool
    handed: bool  # handed-over rows are admitted
    rows_read: int
    moments: tuple[tuple[int, int], ...]  # timestamps that the watermark has reached, and when
    rows_unneeded: int  # rows of rows_read that no query needs; they are not stored
    cpu_s: float
    seconds: Mapping[str, float]
    key_samples: Mapping[str, KeySample] = field(default_factory=dict)  # of the written rows, by exchange
    warning: str | None = None  # a problem of the source that does not prevent reading


@dataclass(frozen=True, slots=True)
class ItemFailed:
    """Answer for a failed item, whose state the worker has released."""

    item: str  # "run", "read" or "checkpoint"
    name: str  # of the unit or stream
    error: str
    trace: str = ""
    disk_full: bool = False
    checkpoint_damaged: bool = False  # the restored checkpoint cannot be read


ItemDone: TypeAlias = RunDone | CheckpointDone | ReadDone | ItemFailed
Reply: TypeAlias = tuple[ItemDone, ...]


def item_failure(
    item: Item, why: str, trace: str = "", *, disk_full: bool = False, checkpoint_damaged: bool = False
) -> ItemFailed | None:
    """Return the answer for an item that failed; None for `Forget`."""
    if isinstance(item, ReadStream):
        return ItemFailed("read", item.stream, why, trace, disk_full)
    if isinstance(item, Forget):
        return None
    kind = "run" if isinstance(item, RunUnit) else "checkpoint"
    return ItemFailed(kind, item.unit, why, trace, disk_full, checkpoint_damaged)

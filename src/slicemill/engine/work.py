"""The protocol between dispatcher and workers: items of work, many per message, and their answers.

Messages live for milliseconds between processes of one version, so they are pickled as they are. Nothing of
them is stored: what lasts is in the journal (`storage.changes`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from slicemill.ingest.stream import Announced, HandedRows
from slicemill.metrics.due import Arrivals, TimeMoments
from slicemill.operators.cell import HeavyKey
from slicemill.operators.in_turn import Dues
from slicemill.operators.join.heavy import NO_WORK, KeySample, KeyWork
from slicemill.operators.join.slices.coverage import Covers
from slicemill.plan.partitions import Exchange
from slicemill.scheduling.balance import CellId
from slicemill.shedding.ages import Compared
from slicemill.shedding.load import Dropping
from slicemill.shedding.report import Report
from slicemill.storage.changes import Appended
from slicemill.storage.epochs import Epoch
from slicemill.storage.segments import Extent

# By log, of the rows that were written to it: by exchange, the keys that many of them have.
KeySamples: TypeAlias = Mapping[str, Mapping[str, KeySample]]


@dataclass(frozen=True, slots=True)
class LogSpan:
    """Epochs of a log that a run reads, and the log's watermark behind them.

    Rows before `from_ts` do not count, if it is given.
    """

    folder: Path
    columns: pa.Schema
    epochs: tuple[Epoch, ...]
    watermark: int
    needed: frozenset[str]
    from_ts: int | None = None


@dataclass(frozen=True, slots=True)
class Restore:
    """How a worker restores a cell's state: a checkpoint, and the epochs to replay after it.

    The replay makes no results: those are committed. `newcomers` have joined since the checkpoint, and
    `successors` have taken over the state of others, by name. Where the unit had other cells `before`, by
    the exchanges and heavy keys that they had, `files` are those of all.
    `first_rows` says if the rows that hold before the first tuple are among the committed results.
    """

    files: tuple[Any, ...]
    replay: Mapping[str, LogSpan]
    newcomers: Covers
    successors: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, Exchange] | None = None
    heavy: tuple[HeavyKey, ...] = ()
    first_rows: bool = False


@dataclass(frozen=True, slots=True)
class OutputLog:
    """Where the rows of a log are appended, and by which exchanges units read them.

    Only rows after `after_us` are appended, if it is given: those before are of incomplete windows.
    """

    folder: Path
    exchanges: tuple[Exchange, ...] = ()
    after_us: int | None = None


@dataclass(frozen=True, slots=True)
class RunUnit:
    """Run one cell of a unit over new epochs; a worker that does not have the cell gets `restore`.

    `moments` say when the streams that its results come from got where, `now_us` is the mill's time.
    """

    mill: str
    unit: str
    cell: int
    plan: str  # digest of its UnitPlan
    run: int
    after: int  # the last run that is committed: a cell in memory goes on from it
    inputs: Mapping[str, LogSpan]
    outputs: Mapping[str, OutputLog]
    state_folder: Path
    moments: tuple[TimeMoments, ...]
    now_us: int
    latest: Mapping[str, int] = field(default_factory=dict)  # of all cells, by node
    dropping: Mapping[str, Dropping] = field(default_factory=dict)
    heavy: tuple[HeavyKey, ...] = ()  # keys of which all cells get the rows, in a replay too
    restore: Restore | None = None
    checkpoint: bool = False  # with the run: where no process keeps the state
    failed: frozenset[str] = frozenset()  # outputs that have failed: what only they need is not computed
    limit_s: float = math.inf  # processor seconds of one step, after which its queries fail


@dataclass(frozen=True, slots=True)
class CheckpointUnit:
    """Write the state of a cell as it is after a run.

    A worker that stays takes a snapshot and writes it in another thread, while it runs the next items. It has
    no answer for this item then, and sends `CheckpointDone` as a notice.
    """

    mill: str
    unit: str
    cell: int
    run: int
    state_folder: Path


@dataclass(frozen=True, slots=True)
class ReadStream:
    """Read a stream's source from `offsets` on, partition by partition, and admit what is there.

    `progress` is what the journal says of the stream, for a worker that reads it for the first time; `held`
    are the rows that wait to be put in order.
    """

    mill: str
    stream: str
    plan: str
    offsets: Mapping[str, Any]
    announced: Announced
    limit_rows: int
    first: bool  # this worker has not read the stream in this mill so far, or failed to
    progress: Mapping[str, Any]
    held: tuple[Extent, ...] = ()
    handed: HandedRows | None = None
    flush: bool = False  # the stream has ended: nothing is held back any more
    now_us: int | None = None  # the mill's time, where it is not the wall clock's
    replay: HandedRows | None = None  # rows that could not be read before; the source is not asked


@dataclass(frozen=True, slots=True)
class Forget:
    """Release a mill's units, cells of units and streams from memory; everything if nothing is named."""

    mill: str
    units: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()
    cells: tuple[CellId, ...] = ()


Item: TypeAlias = RunUnit | CheckpointUnit | ReadStream | Forget


@dataclass(frozen=True, slots=True)
class Message:
    """Items in the order in which they are done, and the pickled plans that the worker does not have yet."""

    items: tuple[Item, ...]
    plans: Mapping[str, bytes] = field(default_factory=dict)
    sync: bool = False  # durability 'machine': what is written must outlive the machine's power
    now_us: int = 0  # the time of the process that asks: that of the worker is no earlier
    number: int = 0  # of the messages to this worker
    record: Path | None = None  # where a process of its own notes the step that it runs


@dataclass(frozen=True, slots=True)
class RunDone:
    unit: str
    cell: int
    run: int
    written: Mapping[str, Appended]
    watermarks: Mapping[str, int]  # of the outputs
    errors: Mapping[str, str]
    rows: Mapping[str, int]  # out of each node
    arrivals: Mapping[str, Arrivals]
    due: Dues
    latest: Mapping[str, int]  # the last tuple that came to nodes whose last words are said then
    sheds: Mapping[str, Report]
    state_bytes: int
    cpu_s: float
    seconds: Mapping[str, float]
    checkpoint: tuple[Any, ...] | None = None
    rows_in: int = 0
    bytes_read: int = 0  # of logs, by this cell
    compared: Mapping[str, Compared] = field(default_factory=dict)  # by joins, by the age of rows
    python_s: float = 0.0  # of the processor seconds, those of kernels that have no machine code yet
    key_work: KeyWork = NO_WORK
    key_samples: KeySamples = field(default_factory=dict)
    collecting_s: float = 0.0  # of the processor seconds, those of garbage collection
    overran: frozenset[str] = frozenset()  # of the errors, those of steps that took too long

    @property
    def pairs(self) -> int:
        return sum(found.total for found in self.compared.values())


@dataclass(frozen=True, slots=True)
class CheckpointDone:
    """The state of a cell after a run is written, unless it `failed`."""

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
    written: Mapping[str, Appended]  # by the log's role: rows, errors, late, held
    progress: Mapping[str, Any]
    more: bool
    again_us: int | None
    ended: bool
    handed: bool  # what was handed over is done
    rows_read: int
    moments: tuple[tuple[int, int], ...]  # timestamps that the stream's time got to, and when
    rows_unneeded: int  # of them, what no query wants, which is not stored
    cpu_s: float
    seconds: Mapping[str, float]
    key_samples: Mapping[str, KeySample] = field(default_factory=dict)  # of its rows, by exchange
    warning: str | None = None  # what is wrong with the source, though it can be read


@dataclass(frozen=True, slots=True)
class ItemFailed:
    """An item that could not be done; the worker has forgotten what it kept for it."""

    item: str  # "run", "read" or "checkpoint"
    name: str  # of the unit or stream
    error: str
    trace: str = ""
    disk_full: bool = False
    checkpoint_damaged: bool = False  # it had to be restored from one that cannot be read


ItemDone: TypeAlias = RunDone | CheckpointDone | ReadDone | ItemFailed
Reply: TypeAlias = tuple[ItemDone, ...]


def failed_item(
    item: Item, why: str, trace: str = "", *, disk_full: bool = False, checkpoint_damaged: bool = False
) -> ItemFailed | None:
    """Return the answer for an item that failed; None for `Forget`."""
    if isinstance(item, ReadStream):
        return ItemFailed("read", item.stream, why, trace, disk_full)
    if isinstance(item, Forget):
        return None
    kind = "run" if isinstance(item, RunUnit) else "checkpoint"
    return ItemFailed(kind, item.unit, why, trace, disk_full, checkpoint_damaged)

"""One bucket's part of a unit run, as a Spark task executes it.

A worker keeps the programs it has run. Workers are not pinned to buckets, so what is kept is used only if the
slice that it wrote is the one that the driver asks to go on from; else state is loaded from that slice. (The
number of a version would not do: a run that was never committed has the same one as the run in its place.)
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle

from slicemill.engine.early_panes import read_panes
from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.engine.steps.drop import Dropping
from slicemill.engine.steps.shared_windows import Early
from slicemill.plan.early_cost import Counted
from slicemill.shedding.report import Report
from slicemill.storage.arrow_schema import ARRIVAL
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.storage.chunk import ChunkInfo, merge_sorted, write_chunk
from slicemill.storage.log import CHUNKS
from slicemill.storage.log_epoch import Epoch
from slicemill.storage.log_read import read_epoch
from slicemill.storage.state import SLICES

# When the rows of an output had arrived that caused them, and how many of them at each time: rows arrive by
# epochs, so there are few times. Rows that time alone has made are not counted.
Arrivals: TypeAlias = tuple[tuple[int, int], ...]

_STAGES = ("unit task: open chunks", "unit task: kernels", "unit task: write chunks")


@dataclass(frozen=True, slots=True)
class InputSpan:
    """The epochs of a log that a task reads, and how far the log is complete behind them."""

    folder: Path
    columns: pa.Schema
    epochs: tuple[Epoch, ...]
    complete: int
    needed: frozenset[str]  # columns that the unit reads
    panes: str | None = None  # the recipe by which entries are read in place of rows


@dataclass(frozen=True, slots=True)
class Task:
    bucket: int
    plan: str  # its digest
    state: tuple[ChunkInfo, ...]  # the slices to go on from, that with all that is not in slices first
    unit_folder: Path
    inputs: Mapping[str, InputSpan]
    outputs: Mapping[str, Path]
    dropping: Mapping[str, Dropping] = field(default_factory=dict)  # what drop boxes do, by node


@dataclass(frozen=True, slots=True)
class TaskResult:
    bucket: int
    chunks: Mapping[str, ChunkInfo]
    complete: Mapping[str, int]
    state: tuple[ChunkInfo, ...]
    errors: Mapping[str, str]
    rows: Mapping[str, int]
    arrivals: Mapping[str, Arrivals]  # per output
    due: int | None
    cpu_s: float
    seconds: Mapping[str, float]  # what its stages took
    sheds: Mapping[str, Report]  # what was dropped so far, by node
    panes: Counted = field(default_factory=Counted)  # what went into those of shared windows


def store_state(folder: Path, states: Mapping[str, object]) -> tuple[ChunkInfo, ...]:
    """Write a checkpoint to a unit's folder; its files as the unit's versions name them."""
    written = write_checkpoint(folder / SLICES, states)
    return tuple(ChunkInfo(f"{SLICES}/{path}", 0, size, None, None) for path, size in written)


def load_state(folder: Path, chunks: Sequence[ChunkInfo]) -> Mapping[str, object]:
    written = [[chunk.path.removeprefix(f"{SLICES}/"), chunk.bytes] for chunk in chunks]
    return read_checkpoint(folder / SLICES, written)


# Unit folder and bucket → plan digest, slice that holds what it has reached, program.
_programs: dict[tuple[Path, int], tuple[str, tuple[ChunkInfo, ...], UnitProgram]] = {}


class Pickled(Protocol):
    """A pickled UnitPlan, as a broadcast brings it: a worker fetches it once, and not with every task."""

    @property
    def value(self) -> bytes: ...


def run_task(task: Task, plans: Mapping[str, Pickled]) -> TaskResult:
    """Run one bucket; `plans` are found by their digests."""
    began, clock = time.process_time(), [time.perf_counter()]
    program = _program(task, plans)
    tables, complete = {}, {}
    early: Early = ()
    for log, span in task.inputs.items():
        complete[log] = span.complete
        if span.panes is not None:
            early, tables[log] = read_panes(span.folder, span.epochs, span.panes), program.empty_input(log)
            continue
        parts = [
            read_epoch(span.folder, span.columns, epoch, needed=span.needed)
            for epoch in span.epochs
            if epoch.rows
        ]
        tables[log] = merge_sorted(parts) if parts else program.empty_input(log)
    clock.append(time.perf_counter())
    outcome = program.run(tables, complete, task.dropping, early)
    clock.append(time.perf_counter())
    chunks = {
        log: write_chunk(task.outputs[log], CHUNKS, table, compress=True)
        for log, table in outcome.tables.items()
        if table.num_rows
    }
    state = store_state(task.unit_folder, program.states)
    _programs[task.unit_folder, task.bucket] = (task.plan, state, program)
    clock.append(time.perf_counter())
    arrivals = {log: _arrivals(table) for log, table in outcome.tables.items() if table.num_rows}
    return TaskResult(
        task.bucket,
        chunks,
        outcome.complete,
        state,
        outcome.errors,
        outcome.rows,
        arrivals,
        outcome.due,
        time.process_time() - began,
        {name: after - before for name, (before, after) in zip(_STAGES, pairwise(clock), strict=True)},
        program.sheds,
        outcome.panes,
    )


def _program(task: Task, plans: Mapping[str, Pickled]) -> UnitProgram:
    # Taken out while it runs: a run that fails half-way leaves nothing that a retry could go on from.
    known = _programs.pop((task.unit_folder, task.bucket), None)
    if known is not None and known[:2] == (task.plan, task.state):
        return known[2]
    plan = cast(UnitPlan, cloudpickle.loads(plans[task.plan].value))
    return UnitProgram(plan, task.bucket, load_state(task.unit_folder, task.state))


def _arrivals(table: pa.Table) -> Arrivals:
    found = pc.value_counts(table.column(ARRIVAL))
    pairs = zip(found.field("values").to_pylist(), found.field("counts").to_pylist(), strict=True)
    return tuple((arrival, rows) for arrival, rows in pairs if arrival > 0)

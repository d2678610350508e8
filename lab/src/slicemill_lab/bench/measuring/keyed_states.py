"""Measurement of a query with many keys: CPU time of a small run, and pause of a checkpoint.

A checkpoint blocks the worker for the snapshot of the state, which is taken in memory. Another thread writes
the snapshot while further runs continue.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from slicemill.binder import bind
from slicemill.columns.pace import paced
from slicemill.metrics.profiling import process_gc_seconds, watch_gc
from slicemill.operators import state_codecs  # noqa: F401 - as in a worker: no snapshot imports them  # noqa: F401 - as in a worker: no snapshot imports them
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import CheckpointFiles, EncodedStates, describe, encode_states, write
from slicemill_lab.bench.inputs.keyed_states import KeyedQuery, rows_of

_FILL_ROWS = 100_000
RUN_ROWS = 1_000
CHECKPOINTS = 4


@dataclass(frozen=True, slots=True)
class KeyedFigures:
    """Times of a query with many keys.

    `fill_s` is the CPU time of the rows that introduced all keys. `run_ms` is the least CPU time of a run of
    1,000 rows.
    `snapshot_ms` is the greatest CPU time of the worker's thread in a snapshot, over all checkpoints and
    tasks;
    `snapshot_wall_ms` is the same in wall time. `write_ms` and `write_cpu_s` are the wall time and CPU time
    of writing the first checkpoint, which has all keys, in another thread. `later_write_cpu_s` is the CPU
    time of writing the last checkpoint, after few runs.
    `beside_ms` and `beside_p50_ms` are the wall times of the slowest run and of the median run of 1,000 rows
    while the first checkpoint is written; `beside_collecting_ms` is the time of garbage collections in the
    slowest run. `alone_ms` and `alone_p50_ms` are those of runs without a write.
    `bytes` is the size of all files, `states` has the names of the classes in them.
    """

    keys: int
    fill_s: float
    run_ms: float
    snapshot_ms: float
    snapshot_wall_ms: float
    write_ms: float
    write_cpu_s: float
    later_write_cpu_s: float
    alone_ms: float
    alone_p50_ms: float
    beside_ms: float
    beside_p50_ms: float
    beside_collecting_ms: float
    bytes: int
    states: frozenset[str]


def keyed_figures(query: KeyedQuery, keys: int, runs: int) -> KeyedFigures:
    """Fill a query with its keys, then measure runs of 1,000 rows and checkpoints."""
    rng = np.random.default_rng(5)
    watch_gc()
    tasks = RunningTasks(query.script)
    began = time.process_time()
    rows = 0
    for first in range(0, keys, _FILL_ROWS):
        count = min(_FILL_ROWS, keys - first)
        tasks.run(rows_of(np.arange(first, first + count), rows))
        rows += count
    fill_s = time.process_time() - began
    run_ms: list[float] = []
    collecting_ms: list[float] = []
    alone_ms: list[float] = []
    snapshot_ms, snapshot_wall_ms = [], []
    writes: list[_Writer] = []

    def run() -> float:
        """Run 1,000 rows with random keys. Return the wall time in milliseconds."""
        nonlocal rows
        table = rows_of(rng.integers(0, keys, RUN_ROWS), rows)
        rows += RUN_ROWS
        collecting_s = process_gc_seconds()
        clock, began = time.perf_counter(), time.process_time()
        tasks.run(table)
        collecting_ms.append(1e3 * (process_gc_seconds() - collecting_s))
        run_ms.append(1e3 * (time.process_time() - began))
        return 1e3 * (time.perf_counter() - clock)

    for _ in range(runs):
        alone_ms.append(run())
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        for checkpoint in range(CHECKPOINTS):
            taken = []
            for own in tasks.states:
                clock, began = time.perf_counter(), time.thread_time()
                taken.append(encode_states(own))
                snapshot_ms.append(1e3 * (time.thread_time() - began))
                snapshot_wall_ms.append(1e3 * (time.perf_counter() - clock))
            writer = _Writer(Path(folder), taken)
            if not checkpoint:
                beside_ms = writer.beside(run)
            else:
                writer.write()
                alone_ms += [run() for _ in range(runs)]
            writes.append(writer)
        described = [describe(Path(folder), files)["states"]["classes"] for files in writer.files if files]
    states = frozenset(name for classes in described for name in classes)
    size = sum(each[-1] for files in writer.files for each in files)
    return KeyedFigures(
        keys,
        fill_s,
        min(run_ms),
        max(snapshot_ms),
        max(snapshot_wall_ms),
        writes[0].wall_ms,
        writes[0].cpu_s,
        writes[-1].cpu_s,
        max(alone_ms),
        median(alone_ms),
        max(beside_ms),
        median(beside_ms),
        max(zip(beside_ms, collecting_ms[runs:], strict=False))[1],
        size,
        states,
    )


class _Writer:
    """Writes the snapshots of all tasks."""

    def __init__(self, folder: Path, snapshots: list[EncodedStates]) -> None:
        self._folder = folder
        self._snapshots = snapshots
        self.files: list[CheckpointFiles] = []
        self.wall_ms = self.cpu_s = 0.0

    def write(self) -> None:
        """Write the snapshots in this thread, as a worker does in the background."""
        clock, began = time.perf_counter(), time.thread_time()
        with paced():
            self.files = [write(self._folder, snapshot) for snapshot in self._snapshots]
        self.wall_ms, self.cpu_s = 1e3 * (time.perf_counter() - clock), time.thread_time() - began

    def beside(self, run: Callable[[], float]) -> list[float]:
        """Write the snapshots in another thread, and run until the end. Return the time of each run."""
        thread = threading.Thread(target=self.write)
        thread.start()
        times = [run()]
        while thread.is_alive():
            times.append(run())
        thread.join()
        return times


class RunningTasks:
    """Units of a script in this process, with one subtask each."""

    def __init__(self, script: str) -> None:
        catalog = bind(script).catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        self._programs = [
            TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
            for task in split_into_tasks(graph)
        ]

    def run(self, table: pa.Table) -> None:
        """Run each task over new rows of the stream, and over the output of upstream tasks."""
        tables = {"s": table}
        complete = {"s": int(table.column(0)[-1].as_py())}
        for program in self._programs:
            inputs = {log: tables.get(log, program.empty_input(log)) for log in program.plan.task.inputs}
            outcome = program.run(inputs, {log: complete[log] for log in inputs})
            assert not outcome.errors, outcome.errors
            tables |= outcome.tables
            complete |= outcome.watermarks

    @property
    def states(self) -> list[dict[str, object]]:
        """States of each task, as a checkpoint contains the state of one task."""
        return [program.states for program in self._programs]

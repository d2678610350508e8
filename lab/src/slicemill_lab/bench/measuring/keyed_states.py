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

import numpy as np
import pyarrow as pa

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.esl import bind
from slicemill.operators import state_codecs  # noqa: F401 - as in a worker: no snapshot imports them
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
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
    units;
    `snapshot_wall_ms` is the same in wall time. `write_ms` is the wall time of writing the files in another
    thread.
    `beside_ms` is the wall time of the slowest run of 1,000 rows during a write, `alone_ms` of the slowest
    run without.
    `bytes` is the size of all files, `states` has the names of the classes in them.
    """

    keys: int
    fill_s: float
    run_ms: float
    snapshot_ms: float
    snapshot_wall_ms: float
    write_ms: float
    alone_ms: float
    beside_ms: float
    bytes: int
    states: frozenset[str]


def keyed_figures(query: KeyedQuery, keys: int, runs: int) -> KeyedFigures:
    """Fill a query with its keys, then measure runs of 1,000 rows and checkpoints."""
    rng = np.random.default_rng(5)
    units = RunningUnits(query.script)
    began = time.process_time()
    rows = 0
    for first in range(0, keys, _FILL_ROWS):
        count = min(_FILL_ROWS, keys - first)
        units.run(rows_of(np.arange(first, first + count), rows))
        rows += count
    fill_s = time.process_time() - began
    run_ms, alone_ms, beside_ms = [], [], []
    snapshot_ms, snapshot_wall_ms, write_ms = [], [], []

    def run() -> float:
        """Run 1,000 rows with random keys. Return the wall time in milliseconds."""
        nonlocal rows
        table = rows_of(rng.integers(0, keys, RUN_ROWS), rows)
        rows += RUN_ROWS
        clock, began = time.perf_counter(), time.process_time()
        units.run(table)
        run_ms.append(1e3 * (time.process_time() - began))
        return 1e3 * (time.perf_counter() - clock)

    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        for checkpoint in range(CHECKPOINTS):
            taken = []
            for own in units.states:
                clock, began = time.perf_counter(), time.thread_time()
                taken.append(encode_states(own))
                snapshot_ms.append(1e3 * (time.thread_time() - began))
                snapshot_wall_ms.append(1e3 * (time.perf_counter() - clock))
            writer = _Writer(Path(folder), taken)
            if checkpoint + 1 < CHECKPOINTS:
                write_ms.append(writer.write())
                alone_ms += [run() for _ in range(runs)]
                runs_alone = len(run_ms)
            else:  # the last checkpoint is written in the background, as in workers
                beside_ms += writer.beside(run)
        described = [describe(Path(folder), files)["states"]["classes"] for files in writer.files if files]
    states = frozenset(name for classes in described for name in classes)
    size = sum(each[-1] for files in writer.files for each in files)
    return KeyedFigures(
        keys,
        fill_s,
        min(run_ms[:runs_alone]),
        max(snapshot_ms),
        max(snapshot_wall_ms),
        max(write_ms),
        max(alone_ms),
        max(beside_ms),
        size,
        states,
    )


class _Writer:
    """Writes the snapshots of all units."""

    def __init__(self, folder: Path, snapshots: list[EncodedStates]) -> None:
        self._folder = folder
        self._snapshots = snapshots
        self.files: list[CheckpointFiles] = []

    def write(self) -> float:
        """Write the snapshots in this thread. Return the wall time in milliseconds."""
        began = time.perf_counter()
        self.files = [write(self._folder, snapshot) for snapshot in self._snapshots]
        return 1e3 * (time.perf_counter() - began)

    def beside(self, run: Callable[[], float]) -> list[float]:
        """Write the snapshots in another thread, and run until the end. Return the time of each run."""
        thread = threading.Thread(target=self.write)
        thread.start()
        times = [run()]
        while thread.is_alive():
            times.append(run())
        thread.join()
        return times


class RunningUnits:
    """Units of a script in this process, with one cell each."""

    def __init__(self, script: str) -> None:
        catalog = bind(script).catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        self._programs = [UnitProgram(UnitPlan(unit, graph, catalog, {})) for unit in cut(graph)]

    def run(self, table: pa.Table) -> None:
        """Run each unit over new rows of the stream, and over the output of upstream units."""
        tables = {"s": table}
        complete = {"s": int(table.column(0)[-1].as_py())}
        for program in self._programs:
            inputs = {log: tables.get(log, program.empty_input(log)) for log in program.plan.unit.inputs}
            outcome = program.run(inputs, {log: complete[log] for log in inputs})
            assert not outcome.errors, outcome.errors
            tables |= outcome.tables
            complete |= outcome.watermarks

    @property
    def states(self) -> list[dict[str, object]]:
        """States of each unit, as a checkpoint contains the state of one unit."""
        return [program.states for program in self._programs]

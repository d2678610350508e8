"""A query with many keys: the CPU time of a small run, and how long a checkpoint holds the worker.

A checkpoint holds the worker for the snapshot of the state, which is taken in memory. Another thread writes
the snapshot while the next runs go on.
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

    `fill_s` are the CPU seconds of the rows that brought all keys. `run_ms` are the CPU milliseconds of a run
    of 1,000 rows, the least. `snapshot_ms` is the CPU time of the worker's thread in a snapshot, the greatest
    of all checkpoints, of the unit that takes longest; `snapshot_wall_ms` is the same by the clock.
    `write_ms` is the time by the clock that another thread took to write files. `beside_ms` is that of the
    slowest run of 1,000 rows meanwhile, and `alone_ms` of the slowest run without a writer.
    `bytes` is the size of all files, `states` are the names of the classes in them.
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
    """Bring a query all its keys, then measure runs of 1,000 rows and a checkpoint."""
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
        """Run 1,000 rows with random keys; milliseconds by the clock."""
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
            else:  # the last one is written as workers do it
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
        """Write them in this thread; milliseconds by the clock."""
        began = time.perf_counter()
        self.files = [write(self._folder, snapshot) for snapshot in self._snapshots]
        return 1e3 * (time.perf_counter() - began)

    def beside(self, run: Callable[[], float]) -> list[float]:
        """Write them in another thread, and run until they are written; how long each run took."""
        thread = threading.Thread(target=self.write)
        thread.start()
        times = [run()]
        while thread.is_alive():
            times.append(run())
        thread.join()
        return times


class RunningUnits:
    """The units of a script in this process, each with one cell."""

    def __init__(self, script: str) -> None:
        catalog = bind(script).catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        self._programs = [UnitProgram(UnitPlan(unit, graph, catalog, {})) for unit in cut(graph)]

    def run(self, table: pa.Table) -> None:
        """Run each unit over new rows of the stream, and over what units before it have made of them."""
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
        """The states of each unit: a checkpoint is of one unit."""
        return [program.states for program in self._programs]

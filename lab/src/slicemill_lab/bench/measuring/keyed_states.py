"""A query with many keys: the CPU time of a small run, and how long a checkpoint holds the worker."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
from slicemill.storage.checkpoints import describe, write_checkpoint
from slicemill_lab.bench.inputs.keyed_states import KeyedQuery, rows_of

_FILL_ROWS = 100_000
RUN_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class KeyedFigures:
    """CPU times of a query with many keys.

    `fill_s` are the seconds of the rows that brought all keys. `run_ms` are the milliseconds of a run of
    1,000 rows. `checkpoint_ms` are those for which a checkpoint holds the worker, of the unit that takes
    longest; `bytes` is the size of all of them.
    `states` are the names of the classes that it has stored.
    """

    keys: int
    fill_s: float
    run_ms: float
    checkpoint_ms: float
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
    run_ms, checkpoint_ms = [], []
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        for own in units.states:
            write_checkpoint(Path(folder), own)
        for _ in range(runs):
            table = rows_of(rng.integers(0, keys, RUN_ROWS), rows)
            rows += RUN_ROWS
            began = time.process_time()
            units.run(table)
            run_ms.append(1e3 * (time.process_time() - began))
        for _ in range(3):
            units.run(rows_of(rng.integers(0, keys, RUN_ROWS), rows))
            rows += RUN_ROWS
            of_units, written = [], []
            for own in units.states:
                began = time.process_time()
                written.append(write_checkpoint(Path(folder), own))
                of_units.append(1e3 * (time.process_time() - began))
            checkpoint_ms.append(max(of_units))
        described = [describe(Path(folder), files)["states"]["classes"] for files in written if files]
    states = frozenset(name for classes in described for name in classes)
    size = sum(each[-1] for files in written for each in files)
    return KeyedFigures(keys, fill_s, min(run_ms), min(checkpoint_ms), size, states)


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

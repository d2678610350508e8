"""Benchmark of queries with a million keys: pause of a checkpoint, and cost of a run over few rows.

A query gets a row of each key, then runs of 1,000 rows with random keys. The cost of a run should depend on
its rows, not on the number of keys.

A checkpoint blocks its worker for the snapshot of the state. The bar is on the greatest of four snapshots, in
CPU time of the worker's thread. A snapshot does no file I/O, so its CPU time is the pause on an otherwise
idle machine. The figures also have the pause in wall time, and the CPU time of the background writes: of the
first one, which has all keys, and of the last one, after a few runs. They have the median and the slowest run
of 1,000 rows during the first write, and how much of the slowest run was garbage collection.

Interpreted aggregates get a tenth of the keys, as one row takes about 70 us. The join of three streams keeps
27 rows and no keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import getloadavg

from rich.table import Table

from slicemill.codec.registry import registered_names
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.keyed_states import QUERIES, KeyedQuery
from slicemill_lab.bench.measuring.keyed_states import KeyedFigures, keyed_figures
from slicemill_lab.claims import at_most, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.progress import say

PAUSE_MS = 100
TIMES = 5
"""Bar for the time of a run with many keys, relative to a run with few keys."""
FEW = 1_000
SCANNING = ("sessions",)
"""Queries that scan all open keys in each run, and so have no bar."""


@dataclass(frozen=True, slots=True)
class KeyedSizes:
    keys: int
    runs: int


SIZES: Mapping[Scale, KeyedSizes] = {"small": KeyedSizes(20_000, 3), "full": KeyedSizes(1_000_000, 5)}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    found = {query: both(query, sizes) for query in QUERIES}
    stored = frozenset[str]().union(*(many.states for _, many in found.values()))
    claims = (
        *(
            timed(
                at_most(
                    f"{query.name}: a checkpoint holds the worker with {many.keys:,} keys, ms",
                    many.snapshot_ms,
                    PAUSE_MS,
                )
            )
            for query, (_, many) in found.items()
        ),
        *(
            timed(
                at_most(f"{query.name}: a run, times that with {FEW} keys", many.run_ms / few.run_ms, TIMES)
            )
            for query, (few, many) in found.items()
            if query.name not in SCANNING and not query.by_rows
        ),
    )
    figures = {
        "how": f"{sizes.keys} keys in one subtask; runs: CPU ms, least of {sizes.runs}; snapshots: most",
        "load of the machine, 1 min": round(getloadavg()[0], 1),
        "queries": {query.name: _plain(few, many) for query, (few, many) in found.items()},
        "states that no query has": sorted(registered_names().keys() - stored),
    }
    return Result(claims, figures)


def both(query: KeyedQuery, sizes: KeyedSizes) -> tuple[KeyedFigures, KeyedFigures]:
    """Measure a query with few keys and with many keys."""
    say(query.name)
    few = keyed_figures(query, min(FEW, sizes.keys), sizes.runs)
    return few, keyed_figures(query, round(sizes.keys * query.share), sizes.runs)


def _plain(few: KeyedFigures, many: KeyedFigures) -> dict[str, float]:
    return {
        "keys": many.keys,
        "fill, s": round(many.fill_s, 2),
        f"run with {FEW} keys, ms": round(few.run_ms, 2),
        "run, ms": round(many.run_ms, 2),
        "snapshot, CPU ms": round(many.snapshot_ms, 1),
        "snapshot, ms": round(many.snapshot_wall_ms, 1),
        f"keys in {PAUSE_MS} CPU ms": round(many.keys * PAUSE_MS / max(many.snapshot_ms, 0.001)),
        "first write, CPU s": round(many.write_cpu_s, 2),
        "first write, s": round(many.write_ms / 1e3, 2),
        "last write, CPU s": round(many.later_write_cpu_s, 2),
        "median run alone, ms": round(many.alone_p50_ms, 1),
        "slowest run alone, ms": round(many.alone_ms, 1),
        "median run beside a write, ms": round(many.beside_p50_ms, 1),
        "slowest run beside a write, ms": round(many.beside_ms, 1),
        "of it garbage collection, ms": round(many.beside_collecting_ms, 1),
        "checkpoint, MB": round(many.bytes / 1e6, 1),
    }


def tables(result: Result) -> Sequence[Table]:
    shown = Table("query", title="CPU of runs of 1,000 rows and of checkpoints")
    columns = list(next(iter(result.figures["queries"].values())))
    for column in columns:
        shown.add_column(column, justify="right")
    for name, figures in result.figures["queries"].items():
        shown.add_row(name, *(f"{figures[column]:,}" for column in columns))
    return [shown]


BENCHMARK = Benchmark("A million keys: checkpoints and runs of few rows", run, tables)

"""Benchmark of the 24 NEXMark queries: each alone, all in one mill, and compared with Spark and Flink.

*In process*: a mill with workers in this process processes the same events, one second of event time per run.
The first
events warm up the compiled code and are not measured. Rounds alternate, and the best of each counts. Each
query must
give as many rows together as alone.

*Programs*: slicemill and Spark read the same Parquet files, each in its own process
(`rivals/nexmark_comparison.py`).
Flink, where it can be installed, reads the same rows as CSV, because its package has no Parquet reader.
DuckDB checks
the row counts of all systems.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from rich.table import Table

from slicemill.kernels.numba_kernels import initialise_numba
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.testing import open_mill
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.files.comparison import tell
from slicemill_lab.bench.inputs.nexmark_files import write_files
from slicemill_lab.bench.inputs.nexmark_queries import NAMES, event_tables, script
from slicemill_lab.bench.live.flink import VERSION, flink_python
from slicemill_lab.bench.rivals.nexmark_comparison import FLINK, OURS, SPARK, NexmarkComparison
from slicemill_lab.bench.rivals.nexmark_on_flink import ON_FLINK, REFUSED
from slicemill_lab.bench.rivals.nexmark_on_spark import ON_SPARK
from slicemill_lab.bench.startup import example_root
from slicemill_lab.claims import Claim, at_least, at_most, timed
from slicemill_lab.experiment import Result, Scale

TOGETHER = "all together"
_SECOND = 1_000_000
_CPU, _ROWS, _PROGRAMS = "CPU seconds", "events per CPU second", "programs over files"


# One query of each kind, so that the first measured query does not run on a cold machine.
_WARM = ("q00", "q03", "q05", "q17")


@dataclass(frozen=True, slots=True)
class NexmarkSizes:
    """Events per second of event time in all streams; seconds of warm-up, and measured seconds."""

    rate: int
    warm_s: int
    measured_s: int
    rounds: int


@dataclass(frozen=True, slots=True)
class FileSizes:
    """Sizes for files: events of all streams per file of each stream, warm-up files, and measured files."""

    rate: int
    events_per_file: int
    warm: int
    measured: int
    rounds: int


SIZES: Mapping[Scale, NexmarkSizes] = {
    "small": NexmarkSizes(1_000, 5, 20, 3),
    "full": NexmarkSizes(10_000, 10, 60, 3),
}
FILE_SIZES: Mapping[Scale, FileSizes] = {
    "small": FileSizes(10_000, 50_000, 2, 4, 2),
    "full": FileSizes(10_000, 100_000, 2, 10, 3),
}


def run(scale: Scale) -> Result:
    inside, beside = compare(SIZES[scale], NAMES), beside_others(FILE_SIZES[scale], NAMES, _WARM)
    return Result((*inside.claims, *beside.claims), {**inside.figures, **beside.figures})


def beside_others(sizes: FileSizes, names: Sequence[str], warm: Sequence[str] = ()) -> Result:
    """Run each query on slicemill, Spark and Flink over the same rows, and all queries in one mill."""
    flink, missing = flink_python()
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name, ExitStack() as programs:
        folder = Path(name)
        files = write_files(folder / "input", sizes.rate, sizes.events_per_file, sizes.warm, sizes.measured)
        comparison = NexmarkComparison(folder, example_root(), files, programs, flink)
        comparison.run(warm, 1)
        comparison.best.clear()
        comparison.run(names, sizes.rounds)
        comparison.run_ours(TOGETHER, names, sizes.rounds)
    wrong = "; ".join(f"{query}: {what}" for query, what in comparison.wrong.items())
    claims = [at_most("results too many or missing, all systems", len(comparison.wrong), 0, wrong)]
    claims += [_times_spark(comparison, name) for name in names if ON_SPARK[name].mode != "batch"]
    dearest = max(names, key=lambda name: comparison.best[name, OURS].usage.cpu_s)
    ours_s, most_s = (comparison.best[each, OURS].usage.cpu_s for each in (TOGETHER, dearest))
    return Result(
        tuple(claims),
        {
            _PROGRAMS: {
                "how": f"{files.rows} rows of files, {sizes.rate} a second of event time; each system "
                f"is a program of its own, in turns, the best of {sizes.rounds}; CPU of all its processes "
                "from the first files on",
                **comparison.figures(),
                "all together / the dearest": f"{ours_s / most_s:.2f} ({dearest})",
                "times Spark": comparison.all_times(SPARK, names),
                "times Flink": comparison.all_times(FLINK, names),
                "on Spark": {
                    name: f"{ON_SPARK[name].mode}{': ' if ON_SPARK[name].note else ''}{ON_SPARK[name].note}"
                    for name in names
                },
                "on Flink": {
                    name: ON_FLINK[name].note if name in ON_FLINK else REFUSED[name] for name in names
                },
                "Flink": f"not measured: {missing}" if flink is None else f"version {VERSION}, from CSV",
            }
        },
    )


def _times_spark(comparison: NexmarkComparison, name: str) -> Claim:
    ours, spark = (comparison.best[name, system].usage.cpu_s for system in (OURS, SPARK))
    what = f"{name}: rows per CPU second, times Spark's"
    ratio = comparison.times(SPARK, name)
    assert ratio is not None, "Spark runs all of them"
    return timed(at_least(what, ratio, 2, f"{spark:.2f} s, {ours:.2f} s"))


def compare(sizes: NexmarkSizes, names: Sequence[str]) -> Result:
    seconds = [
        event_tables(second * sizes.rate, (second + 1) * sizes.rate, sizes.rate)
        for second in range(sizes.warm_s + sizes.measured_s)
    ]
    best: dict[str, float] = {}
    counts: dict[str, int] = {}
    differing: set[str] = set()
    ways = {**{name: (name,) for name in names}, TOGETHER: tuple(names)}
    # Kernels are compiled during the warm-up, as if they came with the wheel. Otherwise the first query with
    # a kernel would pay for all, and short loops would run as Python for a while.
    # pays for all, and short loops run as Python for a while.
    initialise_numba()
    with patch.dict(os.environ, SLICEMILL_COMPILE="always"):
        for number, (way, queries) in product(range(sizes.rounds), ways.items()):
            cpu_s, rows = played(queries, seconds, sizes.warm_s)
            best[way] = min(best.get(way, cpu_s), cpu_s)
            differing |= {name for name, count in rows.items() if counts.setdefault(name, count) != count}
            tell(f"{way}, round {number + 1} of {sizes.rounds}: {cpu_s:.2f} CPU s")
    events = sizes.rate * sizes.measured_s
    alone = {name: best[name] for name in names}
    dearest = max(alone, key=alone.__getitem__)
    claims = (
        at_most("queries with more or fewer rows beside others than alone", len(differing), 0),
        timed(
            at_most(
                "all together: CPU seconds / those of the dearest alone",
                best[TOGETHER] / alone[dearest],
                5,
                f"{best[TOGETHER]:.2f} s, {dearest} {alone[dearest]:.2f} s; "
                f"the sum of all alone is {sum(alone.values()):.2f} s",
            )
        ),
    )
    figures = {
        "how": f"{events} events, {sizes.rate} a second of event time, one process, one subtask, "
        f"the best of {sizes.rounds}",
        _CPU: {way: round(cpu_s, 3) for way, cpu_s in best.items()},
        _ROWS: {way: round(events / cpu_s) for way, cpu_s in best.items()},
        "result rows": counts,
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
    }
    return Result(claims, figures)


def played(
    queries: Sequence[str], seconds: Sequence[Mapping[str, pa.Table]], warm: int
) -> tuple[float, dict[str, int]]:
    """Return the CPU seconds after `warm` seconds of events, and the number of rows of each query."""
    now, root = 0, example_root()
    with (
        tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name,
        open_mill(
            home=Path(name) / "home",
            folder=root,
            pool=InlinePool(1, HANDLER),
            clock=lambda: now,
            subtasks=1,
            read_sources=False,
        ) as mill,
    ):
        # A file sink would add writes; the results are in the log anyway.
        mill.execute(script(root, queries).replace(" WITH (sink = 'parquet:out/nexmark/q10')", ""))
        mill.open()
        begun = time.process_time()
        for number, tables in enumerate(seconds):
            if number == warm:
                begun = time.process_time()
            now = (number + 1) * _SECOND
            for stream in mill.running.streams.keys() & tables.keys():
                mill.feed(stream, tables[stream])
            mill.dispatcher.admit_handed()
            mill.dispatcher.run_all()
        mill.dispatcher.end_streams()
        mill.dispatcher.run_all()
        cpu_s = time.process_time() - begun
        for query in queries:
            if (error := mill.queries[query].error) is not None:
                raise AssertionError(f"{query}: {error}")
        return cpu_s, {query: mill.queries[query].measured().rows for query in queries}


def tables(result: Result) -> Sequence[Table]:
    table = Table("query", _CPU, _ROWS)
    for way, cpu_s in result.figures[_CPU].items():
        table.add_row(way, f"{cpu_s:.3f}", f"{result.figures[_ROWS][way]:,}")
    programs = result.figures.get(_PROGRAMS)
    return (table,) if programs is None else (table, _beside(programs))


def _beside(programs: Mapping[str, Any]) -> Table:
    systems = (OURS, SPARK, FLINK)
    table = Table(
        "query", *(f"{system}, CPU s" for system in systems), "times Spark", "times Flink", "on Spark"
    )
    for name, ratio in programs["times Spark"].items():
        phases = [programs.get(f"{name}, {system}") for system in systems]
        seconds = ["" if phase is None else f"{phase['cpu_s']:.2f}" for phase in phases]
        flink = programs["times Flink"].get(name)
        shown = "" if flink is None else f"{flink:.2f}"
        table.add_row(name, *seconds, f"{ratio:.2f}", shown, programs["on Spark"][name])
    return table


BENCHMARK = Benchmark(
    "NEXMark's 24 queries, each alone, all together, and beside Spark and Flink", run, tables
)

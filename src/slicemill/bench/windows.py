"""Sliding-window aggregates over Parquet files, one and many, beside Spark's own streaming.

Means per key, `RANGE r SLIDE 1 SECOND`, over events that come 10 000 to the second. Both sides run in one
session on the same files and are warmed up alike: each runs one aggregate before anything is measured; then
it is started, takes a first file, and is measured from then on: processor seconds of the driver, the JVM and
all Python workers together, until the last result is there. Spark runs a streaming query for each aggregate,
with `window()`, in append mode, into its noop sink, which only counts; slicemill writes results to logs. All
results are counted on both sides, and ours are compared with NumPy's, value by value.

Spark makes range / slide copies of each event, 2 600 of each for eight aggregates of 10 to 640 s together.
So that this ends at all, both sides get fewer events there, and at small scale the eight are of 10 to 80 s.
What a run costs anyway then weighs more on ours.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.bids import Feed
from slicemill.bench.events import EVENTS_PER_S, KEYS, Expected, write_events
from slicemill.bench.panes_kept import entries_kept
from slicemill.bench.process_tree import Usage, measured
from slicemill.bench.window_rivals import MillWindows, SparkWindows, WindowSide
from slicemill.engine.session import local_session
from slicemill.lab.claims import Claim, at_least, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.metrics.stages import recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = (60,)
EIGHT = tuple(range(10, 650, 90))
EIGHT_SHORT = tuple(range(10, 90, 10))
MANY = tuple(range(10, 650, 10))
# With a gigabyte, which is the default, Spark runs out of it over eight aggregates of up to 640 s.
MEMORY = "6g"


@dataclass(frozen=True, slots=True)
class Load:
    """Rows a file, and files."""

    rows: int
    files: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """What both sides get to warm up, for one aggregate and for eight; and ours for one and for 64.

    A file must be longer than a slide, or a side has no result by which it could be seen to have started.
    """

    warm: Load
    one: Load
    eight: Load
    many: Load
    eight_ranges: tuple[int, ...]
    files_per_batch: int = 5


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(Load(100_000, 1), Load(100_000, 5), Load(50_000, 2), Load(100_000, 10), EIGHT_SHORT),
    "full": Sizes(Load(100_000, 5), Load(100_000, 10), Load(20_000, 3), Load(100_000, 40), EIGHT),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """What a side did with its files."""

    rows: int
    results: int
    usage: Usage
    wrong: int
    stages: Mapping[str, float]

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / self.usage.cpu_s

    def figures(self) -> dict[str, Any]:
        return {
            "results": self.results,
            **self.usage.figures(self.rows),
            "seconds by stage": dict(self.stages),
        }


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session(memory=MEMORY)
        try:
            return _result(WindowBench(spark, Path(folder), sizes))
        finally:
            spark.stop()


def _result(bench: WindowBench) -> Result:
    sizes = bench.sizes
    sides: tuple[type[WindowSide], ...] = (MillWindows, SparkWindows)
    for side in sides:
        bench.phase(side, ONE, sizes.warm)
    one, spark_one = (bench.phase(side, ONE, sizes.one) for side in sides)
    eight, spark_eight = (bench.phase(side, sizes.eight_ranges, sizes.eight) for side in sides)
    single, many = (bench.phase(MillWindows, ranges, sizes.many) for ranges in (ONE, MANY))
    kept = {slide: entries_kept(40, slide, 1_000) for slide in (1, 5, 10, 40)}
    phases = {
        "slicemill, 1 aggregate": one,
        "spark, 1 aggregate": spark_one,
        "slicemill, 8 aggregates": eight,
        "spark, 8 aggregates": spark_eight,
        "slicemill, 1 aggregate, for 64": single,
        "slicemill, 64 aggregates": many,
    }
    claims: tuple[Claim, ...] = (
        at_most(
            "results too many, missing or not NumPy's, both sides",
            sum(phase.wrong for phase in phases.values()),
            0,
        ),
        at_least(
            "RANGE 60 s SLIDE 1 s: rows per CPU second, slicemill / Spark's window()",
            one.rows_per_cpu_s / spark_one.rows_per_cpu_s,
            10,
            f"{one.rows} rows on both sides",
        ),
        at_least(
            "8 aggregates: rows per CPU second, slicemill / 8 Spark queries",
            eight.rows_per_cpu_s / spark_eight.rows_per_cpu_s,
            40,
            f"ranges {sizes.eight_ranges[0]} to {sizes.eight_ranges[-1]} s, {eight.rows} rows on both sides",
        ),
        at_most(
            "CPU seconds of 64 aggregates / of 1, on the same rows",
            many.usage.cpu_s / single.usage.cpu_s,
            2,
            f"64 write {many.results} results, 1 writes {single.results}",
        ),
        at_most("RANGE 40 s SLIDE 10 s: values kept of 40 000 tuples", kept[10], 5, "4 panes, 1 in progress"),
    )
    figures = {
        "how": f"{KEYS} keys, {EVENTS_PER_S} events a second of event time; CPU of driver, JVM and Python "
        "workers, one session, one after the other, after a run of one aggregate on each side",
        "load of the machine, 1 min": round(getloadavg()[0], 1),
        **{name: phase.figures() for name, phase in phases.items()},
        "values kept, RANGE 40 s, 1 000 tuples a second, by slide in s": kept,
    }
    return Result(claims, figures)


class WindowBench:
    """The parts of the benchmark, in a session and a folder of their own."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: Sizes) -> None:
        self.sizes = sizes
        self._spark = spark
        self._folder = folder
        self._runs = 0

    def phase(self, make: type[WindowSide], ranges: Sequence[int], load: Load) -> Phase:
        """Start, take the first file, and measure what happens to the others."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        paths = write_events(folder / "events", load.files + 1, load.rows)
        first, all_of_them = Expected(paths[:1]), Expected(paths)
        feed = Feed(folder / "in")
        side = make(self._spark, feed.folder, self.sizes.files_per_batch, ranges, folder / "home")
        side.start()
        try:
            feed.arrive(paths[:1])
            side.finish([first.count(r) for r in ranges])
            counts = [all_of_them.count(r) for r in ranges]
            with recording() as stages, measured() as usage:
                feed.arrive(paths[1:])
                side.finish(counts)
            found = side.counts()
            wrong = sum(abs(count - right) for count, right in zip(found, counts, strict=True))
            wrong += side.differences(all_of_them)
        finally:
            side.stop()
        results = sum(counts) - sum(first.count(r) for r in ranges)
        seconds = {name: round(stage.seconds, 3) for name, stage in stages.items()}
        return Phase(load.rows * load.files, results, usage, wrong, seconds)


BENCHMARK = Benchmark("Sliding-window aggregates, one and many, beside Spark's streaming", run)

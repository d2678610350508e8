"""Window joins beside Spark's stream-stream join: one, many at once, and with longer windows.

Two streams of Parquet files with 2 000 tuples a second each. Both sides run in one session on the same files,
one after the other. Everything runs once before anything is measured; then joins are started, take a first
file of each stream, and from then on are measured: processor seconds of the driver, the JVM and all Python
workers together, until the last pair is there. Pairs are counted on both sides and compared with a count over
sorted arrays. Ratios of rows per processor second are what counts: both sides have the same load beside them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.join_rivals import Arrivals, Input, MillJoins, SparkJoins, WindowedJoin, write_input
from slicemill.bench.process_tree import Usage, measured
from slicemill.lab.claims import Claim, at_least, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.runtime.session import local_session
from slicemill.runtime.stages import recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_S = 2_000
SELECTIVE = 20  # of a thousand values


@dataclass(frozen=True, slots=True)
class Sizes:
    """Files of each stream for the parts of the benchmark, and what must come out at least.

    A run costs some processor time whatever there is in it: with few rows the ratios are smaller.
    """

    warm_files: int
    files_for_one: int
    files_for_many: int
    rows_per_file: int
    files_per_batch: int
    keys: int
    interval_s: float
    longest_s: float
    least_for_one: float
    least_for_four: float


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(6, 8, 8, 10_000, 4, 10_000, 5, 20, 10, 40),
    "full": Sizes(12, 40, 8, 25_000, 8, 10_000, 5, 80, 10, 40),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """What one side did with the files behind the first ones."""

    usage: Usage
    rows: int
    pairs: int
    wrong: int  # pairs too many or missing, over all joins
    state_rows: int
    stages: Mapping[str, float]

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / self.usage.cpu_s


def run(scale: Scale) -> Result:
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session()
        try:
            return _result(JoinBench(spark, Path(folder), SIZES[scale]))
        finally:
            spark.stop()


def joins(count: int, longest_s: float) -> list[WindowedJoin]:
    """Windows up to the longest, evenly; every other one, never the longest, with a selective predicate."""
    windows = [longest_s * (number + 1) / count for number in range(count)]
    return [
        WindowedJoin(window, SELECTIVE) if (count - number) % 2 == 0 else WindowedJoin(window)
        for number, window in enumerate(windows)
    ]


def _result(bench: JoinBench) -> Result:
    sizes = bench.sizes
    one = [WindowedJoin(sizes.interval_s)]
    warm = bench.input(sizes.warm_files, sizes.keys)
    for side in (MillJoins, SparkJoins):
        bench.phase(side, one, warm)
    much = bench.input(sizes.files_for_one, sizes.keys)
    ours, theirs = (bench.phase(side, one, much) for side in (MillJoins, SparkJoins))
    usual = bench.input(sizes.files_for_many, sizes.keys)
    shared = {count: bench.phase(MillJoins, joins(count, sizes.longest_s), usual) for count in (1, 4, 16)}
    spark_4 = bench.phase(SparkJoins, joins(4, sizes.longest_s), usual)
    sparse = bench.input(sizes.files_for_one, 10 * sizes.keys)
    turns = [
        (
            bench.phase(MillJoins, [WindowedJoin(sizes.longest_s / 10)], much),
            bench.phase(MillJoins, [WindowedJoin(sizes.longest_s)], sparse),
        )
        for _ in range(2)
    ]
    short, long = turns[-1]
    phases = {
        f"1 join, {sizes.interval_s:g} s": ours,
        f"1 join, {sizes.interval_s:g} s, Spark": theirs,
        **{f"{count} joins, up to {sizes.longest_s:g} s": phase for count, phase in shared.items()},
        f"4 joins, up to {sizes.longest_s:g} s, Spark": spark_4,
        f"1 join, {sizes.longest_s / 10:g} s": short,
        f"1 join, {sizes.longest_s:g} s, 10 times the keys": long,
    }
    claims = (
        _counted(phases.values()),
        at_least(
            "1 interval join: rows per CPU second, slicemill / Spark's stream-stream join",
            ours.rows_per_cpu_s / theirs.rows_per_cpu_s,
            sizes.least_for_one,
            "results committed to a log on our side, counted and dropped on Spark's",
        ),
        at_most("16 joins cost, times 1 join of the longest window", _cost(shared[16], shared[1]), 2.5),
        at_least(
            "4 joins: rows per CPU second, slicemill / 4 Spark queries",
            shared[4].rows_per_cpu_s / spark_4.rows_per_cpu_s,
            sizes.least_for_four,
            "8.9 at full scale when last measured; our tasks find and write some 20 results a row, "
            "Spark's noop sink only counts them",
        ),
        at_most(
            "16 joins: rows in state, times those of the longest join alone",
            shared[16].state_rows / shared[1].state_rows,
            1.05,
        ),
        at_most(
            "10 times the window, as many matches: cost, times",
            sum(long.usage.cpu_s for _, long in turns) / sum(short.usage.cpu_s for short, _ in turns),
            1.5,
            "in turns, twice",
        ),
    )
    figures = {
        "how": "CPU of driver, JVM and Python workers after warm-up and query start, one session, "
        f"{sizes.files_per_batch * sizes.rows_per_file} rows a side and batch, {sizes.keys} keys",
        **{name: _figures(phase) for name, phase in phases.items()},
    }
    return Result(claims, figures)


def _cost(phase: Phase, other: Phase) -> float:
    return phase.usage.cpu_s / other.usage.cpu_s


def _counted(phases: Iterable[Phase]) -> Claim:
    wrong = sum(phase.wrong for phase in phases)
    return at_most("pairs too many or missing, all phases and both sides", wrong, 0)


def _figures(phase: Phase) -> dict[str, Any]:
    return {
        "rows_per_cpu_s": round(phase.rows_per_cpu_s),
        "pairs": phase.pairs,
        "cpu_s": round(phase.usage.cpu_s, 2),
        "wall_s": round(phase.usage.wall_s, 2),
        "peak_mb": phase.usage.peak_bytes // 1_000_000,
        "cpu_s by process": {kind: round(cpu, 2) for kind, cpu in phase.usage.cpu_s_by_kind.items()},
        "rows in state": phase.state_rows,
        "where our time goes, s": phase.stages,
    }


class JoinBench:
    """The parts of the benchmark, in a session and a folder of their own."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: Sizes) -> None:
        self.spark = spark
        self.sizes = sizes
        self._folder = folder
        self._runs = 0
        self._inputs: dict[tuple[int, int], Input] = {}

    def input(self, files: int, keys: int) -> Input:
        """So many files of each stream, and one more that is taken before anything is measured."""
        if (files, keys) not in self._inputs:
            folder = self._folder / f"{files} files, {keys} keys"
            rows = self.sizes.rows_per_file
            self._inputs[files, keys] = write_input(folder, files + 1, rows, keys, ROWS_PER_S)
        return self._inputs[files, keys]

    def phase(
        self, make: type[MillJoins] | type[SparkJoins], wanted: Sequence[WindowedJoin], files: Input
    ) -> Phase:
        """Start, take the first files, and measure what happens to the others."""
        self._runs += 1
        folder = self._folder / f"run-{self._runs}"
        arrivals = Arrivals(folder)
        side = make(self.spark, folder, self.sizes.files_per_batch, wanted)
        first, expected = ([files.expected(join, count) for join in wanted] for count in (1, files.files))
        side.start()
        try:
            arrivals.arrive(files, 0, 1)
            side.finish(first)
            with recording() as stages, measured() as usage:
                arrivals.arrive(files, 1, files.files)
                side.finish(expected)
            wrong = sum(abs(count - right) for count, right in zip(side.counts(), expected, strict=True))
            rows = 2 * files.rows_per_file * (files.files - 2)
            state_rows = side.state_rows() if isinstance(side, MillJoins) else 0
            where = {name: round(stage.seconds, 3) for name, stage in stages.items()}
            return Phase(usage, rows, sum(expected) - sum(first), wrong, state_rows, where)
        finally:
            side.stop()


BENCHMARK = Benchmark("Window joins, shared, beside Spark's stream-stream join", run)

"""Window joins beside Spark's stream-stream join: one, many at once, and with longer windows.

Two streams of Parquet files with 2 000 tuples a second each. Both sides run in one session on the same files,
one after the other. Everything runs once before anything is measured; then joins are started, take a first
file of each stream, and from then on are measured: processor seconds of the driver, the JVM and all Python
workers together, until the last pair is there, in files on both sides. Pairs are counted on both sides and
compared with a count over sorted arrays. Ratios of rows per processor second are what counts: both sides have
the same load beside them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.join_rivals import (
    VALUES,
    Arrivals,
    Input,
    MillJoins,
    SparkJoins,
    SparkJoinsDropping,
    WindowedJoin,
    write_input,
)
from slicemill.bench.process_tree import Usage, measured
from slicemill.engine.session import local_session
from slicemill.lab.claims import Claim, at_least, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.metrics.stages import recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_PER_S = 2_000
SELECTIVE = 20  # of a thousand values

Side: TypeAlias = type[MillJoins | SparkJoins]
SINKS: Mapping[Side, str] = {
    MillJoins: "",
    SparkJoins: ", Spark",
    SparkJoinsDropping: ", Spark, results dropped",
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many files of each stream there are; `rivals` are Spark's ways to end.

    The JVM goes on compiling for a while after a warm-up: with few rows that is a third of what slicemill
    costs, and the ratios are smaller.
    """

    warm_files: int
    warm_rounds: int
    files: int
    rows_per_file: int
    files_per_batch: int
    keys: int
    shortest_s: float
    longest_s: float
    rivals: tuple[type[SparkJoins], ...]


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(4, 2, 8, 10_000, 4, 10_000, 5, 20, (SparkJoins,)),
    "full": Sizes(12, 3, 40, 25_000, 8, 10_000, 5, 80, (SparkJoins, SparkJoinsDropping)),
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


def joins(count: int, shortest_s: float, longest_s: float) -> list[WindowedJoin]:
    """Windows from the shortest to the longest, evenly; every other one, the longest too, is selective.

    A predicate on the longest window is what makes the shared state smaller than that of the longest join
    alone (Theorem 6); on the others it changes nothing there. A single join has none.
    """
    if count == 1:
        return [WindowedJoin(longest_s)]
    step_s = (longest_s - shortest_s) / (count - 1)
    windows = [shortest_s + step_s * number for number in range(count)]
    return [
        WindowedJoin(window, SELECTIVE if number % 2 else VALUES) for number, window in enumerate(windows)
    ]


def _result(bench: JoinBench) -> Result:
    sizes = bench.sizes
    load_before = getloadavg()
    one = [WindowedJoin(sizes.shortest_s)]
    many = {count: joins(count, sizes.shortest_s, sizes.longest_s) for count in (1, 4, 16)}
    warm = bench.input(sizes.warm_files, sizes.keys)
    for wanted in (*[one] * sizes.warm_rounds, many[4]):
        for side in (MillJoins, SparkJoins):
            bench.phase(side, wanted, warm)
    usual = bench.input(sizes.files, sizes.keys)
    sparse = bench.input(sizes.files, 10 * sizes.keys)
    sides: tuple[Side, ...] = (MillJoins, *sizes.rivals)
    alone = {side: bench.phase(side, one, usual) for side in sides}
    shared = {count: bench.phase(MillJoins, wanted, usual) for count, wanted in many.items()}
    spark_4 = {side: bench.phase(side, many[4], usual) for side in sides[1:]}
    turns = [
        (
            bench.phase(MillJoins, [WindowedJoin(sizes.longest_s / 10)], usual),
            bench.phase(MillJoins, [WindowedJoin(sizes.longest_s)], sparse),
        )
        for _ in range(2)
    ]
    short, long = turns[-1]
    up_to = f"up to {sizes.longest_s:g} s"
    phases = {
        **{f"1 join, {sizes.shortest_s:g} s{SINKS[side]}": phase for side, phase in alone.items()},
        **{f"{count} joins, {up_to}": phase for count, phase in shared.items()},
        **{f"4 joins, {up_to}{SINKS[side]}": phase for side, phase in spark_4.items()},
        f"1 join, {sizes.longest_s / 10:g} s": short,
        f"1 join, {sizes.longest_s:g} s, 10 times the keys": long,
    }
    claims = (
        _counted(phases.values()),
        at_least(
            "1 interval join: rows per CPU second, slicemill / Spark's stream-stream join",
            _faster(alone[MillJoins], alone[SparkJoins]),
            10,
            _both_store(alone[MillJoins], alone),
        ),
        at_most("16 joins cost, times 1 join of the longest window", _cost(shared[16], shared[1]), 2.5),
        at_least(
            "4 joins: rows per CPU second, slicemill / 4 Spark queries",
            _faster(shared[4], spark_4[SparkJoins]),
            40,
            _both_store(shared[4], spark_4),
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
        "load before and after": [round(load[0], 1) for load in (load_before, getloadavg())],
        **{name: _figures(phase) for name, phase in phases.items()},
    }
    return Result(claims, figures)


def _both_store(phase: Phase, rivals: Mapping[Side, Phase]) -> str:
    dropping = rivals.get(SparkJoinsDropping)
    beside = f"; {_faster(phase, dropping):.1f} where Spark drops them" if dropping is not None else ""
    return f"both store results{beside}"


def _faster(phase: Phase, other: Phase) -> float:
    return phase.rows_per_cpu_s / other.rows_per_cpu_s


def _cost(phase: Phase, other: Phase) -> float:
    return phase.usage.cpu_s / other.usage.cpu_s


def _counted(phases: Iterable[Phase]) -> Claim:
    wrong = sum(phase.wrong for phase in phases)
    return at_most("pairs too many or missing, all phases and both sides", wrong, 0)


def _figures(phase: Phase) -> dict[str, Any]:
    return {
        "pairs": phase.pairs,
        **phase.usage.figures(phase.rows),
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

    def phase(self, make: Side, wanted: Sequence[WindowedJoin], files: Input) -> Phase:
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

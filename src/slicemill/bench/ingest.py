"""Parquet files through ingest to the results of filter queries, beside Spark's own streaming.

Both sides run in one session on the same files, one after the other. Everything runs once before anything is
measured, since a JVM needs some seconds of work to compile what it does; then a query is started, takes a
first file, and from then on is measured: processor seconds of the driver, the JVM and all Python workers
together, until the last result is there. Session and first runs are reported apart. Results are counted on
both sides and compared with a batch query. What counts is the ratio of rows per processor second, and its
median over rounds: both sides of a round have much the same load beside them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slicemill.bench.benchmark import Benchmark
from slicemill.bench.bids import Feed, count_rows, many_conditions, one_condition, write_bids
from slicemill.bench.file_latency import latencies, settled
from slicemill.bench.process_tree import Usage, measured
from slicemill.bench.rivals import POLL_MS, MillSide, Side, SparkSide, expected_counts
from slicemill.engine.session import local_session
from slicemill.lab.claims import Claim, at_least, at_most
from slicemill.lab.experiment import Result, Scale
from slicemill.metrics.stages import Stages, recording

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Sizes:
    rows_per_file: int
    files_per_batch: int
    warm_files: int
    warm_files_for_many: int
    files_for_one: int
    files_for_many: int
    rounds: int
    small_rows: int
    small_files: int
    every_s: float


SIZES: Mapping[Scale, Sizes] = {
    "small": Sizes(100_000, 5, 15, 3, 25, 5, 2, 500, 30, 0.15),
    "full": Sizes(100_000, 5, 30, 4, 50, 10, 3, 500, 100, 0.2),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """What one side did with some files."""

    rows: int
    usage: Usage
    wrong: int  # rows too many or missing, over all filters
    stages: Mapping[str, Any] = field(default_factory=dict)


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        with measured() as session:
            spark = local_session()
            spark.range(1).collect()
        # All batches of a query are looked at; Spark forgets them after a hundred.
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 1_000)
        bench = IngestBench(spark, Path(folder), sizes)
        try:
            return _result(bench, session)
        finally:
            spark.stop()


def _result(bench: IngestBench, session: Usage) -> Result:
    sizes = bench.sizes
    with measured() as warm_up:
        # Small batches: what is done once per batch has to be compiled too.
        bench.compare(one_condition(), sizes.warm_files, 1, files_per_batch=1)
        bench.compare(many_conditions(), sizes.warm_files_for_many, 1, files_per_batch=1)
    one = bench.compare(one_condition(), sizes.files_for_one, sizes.rounds)
    many = bench.compare(many_conditions(), sizes.files_for_many, sizes.rounds)
    latency = bench.latencies()
    claims = (
        _counted("1 filter", one),
        at_least(
            "1 filter: rows per CPU second, slicemill / Spark's streaming",
            one["ratio"],
            0.5,
            "results committed to a log on our side, counted and dropped on Spark's",
        ),
        _counted("20 filters", many),
        at_least("20 filters: rows per CPU second, slicemill / 20 Spark queries", many["ratio"], 5),
        at_most(
            "p50 from arrival to result / that of a native stateful query",
            latency["p50 from arrival to result, slicemill, ms"]
            / latency["p50 from arrival to result, native count, ms"],
            3,
            latency["how"],
        ),
        at_most(
            "p50 from arrival to result / p50 of a native stateful batch",
            latency["p50 from arrival to result, slicemill, ms"] / latency["p50 batch, native count, ms"],
            3,
            "the harder measure: ours includes waiting for a poll, a native batch starts with its trigger",
        ),
    )
    figures = {
        "how": "CPU of driver, JVM and Python workers after warm-up and query start, one session, "
        f"{sizes.files_per_batch * sizes.rows_per_file} rows a batch; peak memory is resident, summed",
        "start-up": {"session": session.figures(), "first runs of both sides": warm_up.figures()},
        "1 filter": one,
        "20 filters": many,
        "latency": latency,
    }
    return Result(claims, figures)


def _counted(what: str, compared: Mapping[str, Any]) -> Claim:
    wrong = compared["rows too many or missing"]
    return at_most(f"{what}: rows too many or missing, both sides, against a batch query", wrong, 0)


def _phase(
    side: Side, feed: Feed, paths: Sequence[Path], first: Sequence[int], expected: Sequence[int]
) -> Phase:
    """Start, take the first file, and measure what happens to the others."""
    side.start()
    try:
        feed.arrive(paths[:1])
        side.finish(first)
        with recording() as stages, measured() as usage:
            feed.arrive(paths[1:])
            side.finish(expected)
        wrong = sum(abs(count - right) for count, right in zip(side.counts(), expected, strict=True))
        return Phase(count_rows(paths[1:]), usage, wrong, _where(side, stages))
    finally:
        side.stop()


def _where(side: Side, stages: Stages) -> dict[str, Any]:
    """Seconds and times by stage; those of workers add up over workers."""
    if not isinstance(side, MillSide):
        return {}
    return {
        name: {"s": round(stage.seconds, 3), "times": stage.times} for name, stage in sorted(stages.items())
    }


def _mill_side(
    spark: SparkSession, folder: Path, files_per_batch: int, conditions: Sequence[str], home: Path
) -> Side:
    return MillSide(spark, folder, files_per_batch, conditions, home / "home")


def _spark_side(
    spark: SparkSession, folder: Path, files_per_batch: int, conditions: Sequence[str], home: Path
) -> Side:
    return SparkSide(spark, folder, files_per_batch, conditions, home / "checkpoint")


class IngestBench:
    """The parts of the benchmark, in a session and a folder of their own."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: Sizes) -> None:
        self.spark = spark
        self.sizes = sizes
        self._folder = folder
        self._runs = 0
        files = 1 + max(
            sizes.warm_files, sizes.warm_files_for_many, sizes.files_for_one, sizes.files_for_many
        )
        self._bids = write_bids(folder / "bids", files, sizes.rows_per_file)

    def compare(
        self, conditions: Sequence[str], files: int, rounds: int, files_per_batch: int | None = None
    ) -> dict[str, Any]:
        """Both sides on the same files; `rounds` times, in turns."""
        per_batch = files_per_batch or self.sizes.files_per_batch
        paths = self._bids[: 1 + files]
        first = expected_counts(self.spark, paths[:1], conditions)
        expected = expected_counts(self.spark, paths, conditions)
        ours: list[Phase] = []
        theirs: list[Phase] = []
        for _ in range(rounds):
            for phases, make in ((ours, _mill_side), (theirs, _spark_side)):
                home = self._new_folder()
                feed = Feed(home / "in")
                side = make(self.spark, feed.folder, per_batch, conditions, home)
                phases.append(_phase(side, feed, paths, first, expected))
        mill, native = (reduce(add, (phase.usage for phase in phases)) for phases in (ours, theirs))
        rows = sum(phase.rows for phase in ours)
        ratios = [n.usage.cpu_s / m.usage.cpu_s for m, n in zip(ours, theirs, strict=True)]
        return {
            "rows": rows,
            "queries": len(conditions),
            "rows out": sum(expected),
            "ratio": statistics.median(ratios),
            "ratios by round": ratios,
            "slicemill": mill.figures(rows),
            "spark": native.figures(rows),
            "rows too many or missing": sum(phase.wrong for phase in (*ours, *theirs)),
            "where our time goes, s, last round": ours[-1].stages,
        }

    def _new_folder(self) -> Path:
        self._runs += 1
        return self._folder / f"run-{self._runs}"

    def latencies(self) -> dict[str, Any]:
        sizes = self.sizes
        folder = self._new_folder()
        files = write_bids(folder / "few", sizes.small_files, sizes.small_rows)
        found = latencies(self.spark, folder, files, sizes.every_s)
        mill, native = settled(found.mill), settled(found.native)
        return {
            "how": f"both sides are up and poll every {POLL_MS} ms; a file of {sizes.small_rows} rows comes "
            f"every {sizes.every_s} s, in turns here and there; from a file's arrival until a subscriber has "
            "its rows from our results, or until the end of the native batch that has counted them",
            "p50 batch, native count, ms": statistics.median(settled(found.native_batches)),
            "p50 from arrival to result, native count, ms": statistics.median(native),
            "p99 from arrival to result, native count, ms": statistics.quantiles(native, n=100)[98],
            "p50 from arrival to result, slicemill, ms": statistics.median(mill),
            "p99 from arrival to result, slicemill, ms": statistics.quantiles(mill, n=100)[98],
        }


BENCHMARK = Benchmark("Parquet files to filter results, beside Spark's streaming", run)

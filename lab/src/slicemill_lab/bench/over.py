"""Benchmark of `avg(v) OVER (PARTITION BY k RANGE w PRECEDING)` for short and long windows.

slicemill processes Parquet files end to end, to results in a log. The cost of a tuple must not depend on the
number of tuples in its window. Spark has no such query on streams, so the rival is its batch window function
over the same files, which sums the whole window for each row. Rows per CPU second are compared in one session
on the same rows, after a warm-up of each side. Our results are counted, and their sum is compared with
NumPy's. Spark's results are checked in an earlier run, as its measured sink discards them.

A window of w rows is as long as w rows of the stream take. With 1,000 keys a partition has a thousandth of
them, so Spark has little to sum. With one partition it has all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.runtime.spark_session import local_session
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.events import write_parts
from slicemill_lab.bench.measuring.one_query import run_query
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.bench.rivals.spark import own_settings
from slicemill_lab.claims import at_least, at_most, timed
from slicemill_lab.experiment import Result, Scale

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "ts TIMESTAMP, k BIGINT, v DOUBLE"
STREAM = f"CREATE STREAM event ({SCHEMA}) ORDER BY ts"
KEYS = 1000
STEP_US = 100  # 10 000 events per second
WINDOW_ROWS = (100, 10_000, 1_000_000)
_CHECKED = 20_000


@dataclass(frozen=True, slots=True)
class OverSizes:
    """Files after the first one, which starts a query. One partition gets fewer, as Spark takes long."""

    rows_per_file: int
    files: int
    files_of_one_partition: int
    files_per_batch: int = 5
    window_rows: Sequence[int] = WINDOW_ROWS


SIZES: Mapping[Scale, OverSizes] = {
    "small": OverSizes(100_000, 10, 2),
    "full": OverSizes(100_000, 40, 10),
}


@dataclass(frozen=True, slots=True)
class OverEvents:
    """Input as NumPy arrays."""

    ts: NDArray[np.int64]
    k: NDArray[np.int64]
    v: NDArray[np.float64]

    @staticmethod
    def random(rows: int) -> OverEvents:
        rng = np.random.default_rng(7)
        values = np.round(rng.gamma(2.0, 50.0, rows), 2)
        return OverEvents(np.arange(rows) * STEP_US, rng.integers(0, KEYS, rows), values)

    def between(self, first: int, last: int) -> OverEvents:
        return OverEvents(self.ts[first:last], self.k[first:last], self.v[first:last])

    def write(self, folder: Path, rows_per_file: int) -> list[Path]:
        ts = pa.array(self.ts, pa.timestamp("us", tz="UTC"))
        return write_parts(folder, pa.table({"ts": ts, "k": self.k, "v": self.v}), rows_per_file)

    def sum_of_averages(self, window_us: int, partitioned: bool) -> float:
        """Return the sum of all results, by prefix sums over the sorted input."""
        order = np.argsort(self.k, kind="stable") if partitioned else np.arange(len(self.ts))
        k = self.k[order] if partitioned else np.zeros(len(order), np.int64)
        # The keys are spaced by more than a window, so that one sorted axis serves all partitions.
        axis = k * (int(self.ts[-1]) + window_us + 1) + self.ts[order]
        starts = np.searchsorted(axis, axis - window_us)
        sums = np.concatenate([[0.0], np.cumsum(self.v[order])])
        ends = np.arange(len(order)) + 1
        return float(((sums[ends] - sums[starts]) / (ends - starts)).sum())


def query(window_us: int, partitioned: bool) -> str:
    by = "PARTITION BY k " if partitioned else ""
    return f"SELECT k, avg(v) OVER ({by}RANGE {window_us} MICROSECONDS PRECEDING) AS mean FROM event"


@dataclass(frozen=True, slots=True)
class OverRun:
    rows: int
    usage: Usage
    wrong_rows: int = 0
    relative_error: float = 0.0

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / self.usage.cpu_s

    def figures(self) -> dict[str, Any]:
        return self.usage.figures(self.rows)


class OverBench:
    """Steps of the benchmark, with a Spark session and a folder."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: OverSizes) -> None:
        self._spark = spark
        self._folder = folder
        self._sizes = sizes
        self._runs = 0
        self.events = OverEvents.random(sizes.rows_per_file * (sizes.files + 1))
        self.paths = self.events.write(folder / "events", sizes.rows_per_file)

    def mill(self, window_us: int, partitioned: bool, files: int) -> OverRun:
        """Run slicemill. The first file starts the query; the other `files` files are measured."""
        self._runs += 1
        home = self._folder / f"run-{self._runs}"
        per_file, batch = self._sizes.rows_per_file, self._sizes.files_per_batch
        paths = self.paths[: files + 1]
        counts = (per_file, per_file * len(paths))
        means = query(window_us, partitioned)
        usage, found = run_query(self._spark, home, STREAM, means, paths, batch, counts)
        total = float(np.sum(found.column("mean").to_numpy()))
        expected = self.events.between(0, per_file * len(paths)).sum_of_averages(window_us, partitioned)
        return OverRun(
            per_file * files,
            usage,
            abs(found.num_rows - per_file * len(paths)),
            abs(total - expected) / expected,
        )

    def rival(self, window_us: int, partitioned: bool, files: int) -> OverRun:
        """Run Spark's batch window function over the measured files, with a sink that discards results."""
        rows = files * self._sizes.rows_per_file
        result = self._by_spark(window_us, partitioned, rows)
        with own_settings(self._spark), measured() as usage:
            result.write.format("noop").mode("overwrite").save()
        return OverRun(rows, usage)

    def rival_checked(self, window_us: int, partitioned: bool) -> OverRun:
        """Run Spark's query over fewer rows, with a count and sum of its results."""
        start, rows = self._sizes.rows_per_file, min(_CHECKED, self._sizes.rows_per_file)
        with measured() as usage:
            found = self._by_spark(window_us, partitioned, rows).selectExpr("count(*)", "sum(mean)").head()
        assert found is not None
        expected = self.events.between(start, start + rows).sum_of_averages(window_us, partitioned)
        return OverRun(rows, usage, abs(found[0] - rows), abs(found[1] - expected) / expected)

    def _by_spark(self, window_us: int, partitioned: bool, rows: int) -> DataFrame:
        """Return Spark's query over `rows` rows after the first file."""
        by = "PARTITION BY k " if partitioned else ""
        over = (
            f"{by}ORDER BY ts RANGE BETWEEN INTERVAL '{window_us / 1e6:.6f}' SECOND PRECEDING AND CURRENT ROW"
        )
        per_file = self._sizes.rows_per_file
        files = self.paths[1 : 1 + -(-rows // per_file)]
        frame = self._spark.read.schema(SCHEMA).parquet(*map(str, files))
        if rows % per_file:
            frame = frame.where(f"ts < timestamp_micros({(per_file + rows) * STEP_US})")
        return frame.selectExpr("k", f"avg(v) OVER ({over}) AS mean")


def run(scale: Scale) -> Result:
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session()
        try:
            return measure(OverBench(spark, Path(folder), SIZES[scale]), SIZES[scale])
        finally:
            spark.stop()


def measure(bench: OverBench, sizes: OverSizes) -> Result:
    middle = sizes.window_rows[1]
    parts = {True: sizes.files, False: sizes.files_of_one_partition}
    bench.mill(middle * STEP_US, False, 1)
    # The JVM compiles during the first round, which would slow the first side down. So there are two rounds.
    for _ in range(2):
        by_key = {rows: bench.mill(rows * STEP_US, True, sizes.files) for rows in sizes.window_rows}
        bench.rival(middle * STEP_US, True, sizes.files)
    ours = {True: by_key[middle], False: bench.mill(middle * STEP_US, False, parts[False])}
    checked = [bench.rival_checked(middle * STEP_US, partitioned) for partitioned in parts]
    theirs = {p: bench.rival(middle * STEP_US, p, files) for p, files in parts.items()}
    ratio = {p: ours[p].rows_per_cpu_s / theirs[p].rows_per_cpu_s for p in parts}
    speeds = [run.rows_per_cpu_s for run in by_key.values()]
    everything = [*by_key.values(), *ours.values(), *checked]
    claims = (
        at_most("results too many or missing, both sides", sum(run.wrong_rows for run in everything), 0),
        at_most(
            "sum of results, relative difference from NumPy's, both sides",
            max(run.relative_error for run in everything),
            1e-9,
        ),
        timed(
            at_most(
                f"windows of {sizes.window_rows[0]:,} to {sizes.window_rows[-1]:,} rows: fastest / slowest",
                max(speeds) / min(speeds),
                1.3,
                "rows per CPU second, end to end",
            )
        ),
        *(
            timed(
                at_least(
                    f"{what}, windows of {middle:,} rows: rows per CPU second, slicemill / Spark's batch",
                    ratio[partitioned],
                    50,
                    f"{ours[partitioned].rows} rows on both sides{note}",
                )
            )
            for partitioned, what, note in (
                (True, f"{KEYS:,} keys", f"; about {middle // KEYS} rows of a key are in its window"),
                (False, "one partition", "; Spark adds up the whole window of each row"),
            )
        ),
    )
    figures = {
        "how": "CPU of driver, JVM and Python workers after a run of the same kind, one session, "
        f"{sizes.files_per_batch * sizes.rows_per_file} rows a batch, {KEYS} keys",
        "load of the machine, 1 min": round(getloadavg()[0], 1),
        "by rows in the window, 1000 keys": {str(rows): run.figures() for rows, run in by_key.items()},
        "one partition": ours[False].figures(),
        "Spark's batch, 1000 keys": theirs[True].figures(),
        "Spark's batch, one partition": theirs[False].figures(),
    }
    return Result(claims, figures)


BENCHMARK = Benchmark("a moving average beside each tuple, windows of 100 to 1 000 000 rows", run)

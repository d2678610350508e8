"""Benchmark of temporal coalescing: runs of equal values per key, over 60 seconds sliding by 10.

    SELECT R.k, R.v, VALID(R) FROM event(v) AS R RANGE 60 SECONDS SLIDES 10 SECONDS PARTITION BY k
    WHERE CAST(VALID(R) AS INTERVAL SECOND) >= 3

slicemill processes Parquet files end to end, to results in a log. Spark has no such query on streams, because
window functions over rows are for batches only. The rival is the better of two formulations as a batch query
in Spark SQL, over the same files, with a sink that discards results. Rows per CPU second are compared in one
session, after a warm-up of each side. The number and total duration of results are compared with those of
NumPy: ours in the measured run, Spark's in an earlier run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import getloadavg
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.runtime.spark_session import local_session
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.events import write_parts
from slicemill_lab.bench.measuring.one_query import run_query
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.bench.rivals.coalesce_sql import FORMULATIONS
from slicemill_lab.bench.rivals.spark import own_settings
from slicemill_lab.claims import at_least, at_most, timed
from slicemill_lab.experiment import Result, Scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "ts TIMESTAMP, k BIGINT, v BIGINT"
STREAM = f"CREATE STREAM event ({SCHEMA}) ORDER BY ts"
KEYS = 1000
STEP_US = 100  # 10 000 events per second
COALESCING = 0.9
SECOND = 1_000_000
RANGE_US, SLIDE_US, LEAST_US = 60 * SECOND, 10 * SECOND, 3 * SECOND
QUERY = (
    "SELECT R.k, R.v, VALID(R) AS held FROM event(v) AS R RANGE 60 SECONDS SLIDES 10 SECONDS PARTITION BY k "
    "WHERE CAST(VALID(R) AS INTERVAL SECOND) >= 3"
)


@dataclass(frozen=True, slots=True)
class CoalesceSizes:
    """Number of files after the first file, which starts a query."""

    rows_per_file: int
    files: int
    files_per_batch: int = 5


SIZES: Mapping[Scale, CoalesceSizes] = {
    "small": CoalesceSizes(100_000, 10),
    "full": CoalesceSizes(100_000, 40),
}


@dataclass(frozen=True, slots=True)
class ExpectedRuns:
    """Number of runs in all windows, and their total duration in microseconds."""

    count: int
    held_us: int


@dataclass(frozen=True, slots=True)
class PeriodEvents:
    """Input as NumPy arrays."""

    ts: NDArray[np.int64]
    k: NDArray[np.int64]
    v: NDArray[np.int64]

    @staticmethod
    def random(rows: int) -> PeriodEvents:
        rng = np.random.default_rng(7)
        k = rng.integers(0, KEYS, rows)
        order = np.argsort(k, kind="stable")
        v = np.empty(rows, np.int64)
        v[order] = np.cumsum(rng.random(rows) >= COALESCING)
        return PeriodEvents(np.arange(rows) * STEP_US, k, v)

    def between(self, first: int, last: int) -> PeriodEvents:
        return PeriodEvents(self.ts[first:last], self.k[first:last], self.v[first:last])

    def write(self, folder: Path, rows_per_file: int) -> list[Path]:
        ts = pa.array(self.ts, pa.timestamp("us", tz="UTC"))
        return write_parts(folder, pa.table({"ts": ts, "k": self.k, "v": self.v}), rows_per_file)

    def expected(self) -> ExpectedRuns:
        """Compute the expected runs of all windows that have ended by the last event."""
        count = held = 0
        for end in range(int(self.ts[0]) // SLIDE_US * SLIDE_US + SLIDE_US, int(self.ts[-1]) + 1, SLIDE_US):
            inside = slice(*np.searchsorted(self.ts, [end - RANGE_US, end]))
            order = np.argsort(self.k[inside], kind="stable")
            k, v, ts = (column[inside][order] for column in (self.k, self.v, self.ts))
            first = np.flatnonzero(np.append(True, (k[1:] != k[:-1]) | (v[1:] != v[:-1])))
            same_key = np.append(k[first[1:]] == k[first[:-1]], False)
            ends = np.where(same_key, np.append(ts[first[1:]], end), end)
            lengths = ends - ts[first]
            count += int((lengths >= LEAST_US).sum())
            held += int(lengths[lengths >= LEAST_US].sum())
        return ExpectedRuns(count, held)


@dataclass(frozen=True, slots=True)
class CoalescePhase:
    rows: int
    usage: Usage
    wrong: int = 0

    @property
    def rows_per_cpu_s(self) -> float:
        return self.rows / self.usage.cpu_s

    def figures(self) -> dict[str, Any]:
        return self.usage.figures(self.rows)


class CoalesceBench:
    """Steps of the benchmark, with a Spark session and a folder."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: CoalesceSizes) -> None:
        self._spark = spark
        self._folder = folder
        self._sizes = sizes
        self._runs = 0
        self.events = PeriodEvents.random(sizes.rows_per_file * (sizes.files + 1))
        self.paths = self.events.write(folder / "events", sizes.rows_per_file)

    def mill(self, files: int) -> CoalescePhase:
        """Run slicemill. The first file starts the query; the other `files` files are measured."""
        self._runs += 1
        per_file, batch = self._sizes.rows_per_file, self._sizes.files_per_batch
        paths = self.paths[: files + 1]
        first, expected = (self.events.between(0, per_file * some).expected() for some in (1, len(paths)))
        counts = (first.count, expected.count)
        home = self._folder / f"run-{self._runs}"
        usage, found = run_query(self._spark, home, STREAM, QUERY, paths, batch, counts)
        return CoalescePhase(per_file * files, usage, _wrong(_total(found.column("held")), expected))

    def rival(self, formulation: str, files: int) -> CoalescePhase:
        """Run Spark's batch query over the measured files, with a sink that discards results."""
        result = self._frame(formulation, files)
        with own_settings(self._spark), measured() as usage:
            result.write.format("noop").mode("overwrite").save()
        return CoalescePhase(files * self._sizes.rows_per_file, usage)

    def rival_checked(self, formulation: str, files: int) -> CoalescePhase:
        """Run Spark's batch query with a count and sum of its results."""
        with measured() as usage:
            found = self._frame(formulation, files).selectExpr("count(*)", "sum(f - b)").head()
        assert found is not None
        per_file = self._sizes.rows_per_file
        expected = self.events.between(per_file, per_file * (files + 1)).expected()
        return CoalescePhase(files * per_file, usage, _wrong(ExpectedRuns(found[0], found[1] or 0), expected))

    def _frame(self, formulation: str, files: int) -> Any:
        paths = self.paths[1 : files + 1]
        self._spark.read.schema(SCHEMA).parquet(*map(str, paths)).createOrReplaceTempView("event")
        last = int(self.events.ts[self._sizes.rows_per_file * (files + 1) - 1]) // SLIDE_US
        sizes = {"range": RANGE_US, "slide": SLIDE_US, "least": LEAST_US, "last": last}
        return self._spark.sql(FORMULATIONS[formulation].format(**sizes))


def _total(held: pa.ChunkedArray) -> ExpectedRuns:
    begin, end = (pc.struct_field(held, name).cast(pa.int64()).to_numpy() for name in ("begin", "end"))
    return ExpectedRuns(len(held), int((end - begin).sum()))


def _wrong(found: ExpectedRuns, expected: ExpectedRuns) -> int:
    """Return the number of extra or missing runs, or 1 if only their durations differ."""
    return abs(found.count - expected.count) or int(found.held_us != expected.held_us)


def run(scale: Scale) -> Result:
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session()
        try:
            return measure(CoalesceBench(spark, Path(folder), SIZES[scale]), SIZES[scale])
        finally:
            spark.stop()


def measure(bench: CoalesceBench, sizes: CoalesceSizes) -> Result:
    warm = bench.mill(sizes.files_per_batch)
    ours = bench.mill(sizes.files)
    checked = {name: bench.rival_checked(name, sizes.files_per_batch) for name in FORMULATIONS}
    theirs = {name: bench.rival(name, sizes.files) for name in FORMULATIONS}
    best = max(theirs, key=lambda name: theirs[name].rows_per_cpu_s)
    claims = (
        at_most(
            "runs too many, missing or of another duration than NumPy's, both sides",
            sum(phase.wrong for phase in (warm, ours, *checked.values())),
            0,
        ),
        timed(
            at_least(
                "rows per CPU second, slicemill / the best batch of Spark SQL",
                ours.rows_per_cpu_s / theirs[best].rows_per_cpu_s,
                3,
                f"{ours.rows} rows on both sides; Spark's best: {best}",
            )
        ),
    )
    figures = {
        "how": f"RANGE 60 s SLIDES 10 s, {KEYS} keys, {1 / STEP_US * SECOND:.0f} events a second, "
        f"{COALESCING:.0%} of them go on with a run; CPU of driver, JVM and Python workers, one session",
        "load of the machine, 1 min": round(getloadavg()[0], 1),
        "slicemill": ours.figures(),
        **{f"Spark SQL, {name}": phase.figures() for name, phase in theirs.items()},
    }
    return Result(claims, figures)


BENCHMARK = Benchmark("runs of equal values with their time, beside batches of Spark SQL", run)

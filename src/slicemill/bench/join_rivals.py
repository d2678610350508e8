"""Joins of two streams of Parquet files over windows of time: by slicemill, and by Spark's own streaming.

Both run in one session and take as many files a batch. slicemill runs all joins in one mill. Spark has a
streaming query for each join, with the window as a condition on event times and watermarks to free its state.
Both write results to files that people can read: slicemill to its logs, Spark to Parquet. Or Spark gives them
to its noop sink, which only counts: less than is asked of slicemill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from slicemill.bench.bids import Feed
from slicemill.bench.rivals import SparkQueries, own_settings
from slicemill.bench.waiting import wait_for_counts
from slicemill.engine.mill import Mill
from slicemill.engine.state_view import slices_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

STREAMS = ("a", "b")
SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"
VALUES = 1000
_SECOND = 1_000_000
_KEY_SPAN = 1 << 40  # longer than any stream here, in microseconds


@dataclass(frozen=True, slots=True)
class WindowedJoin:
    """Pairs of equal keys less than `window_s` apart, of left tuples with a value below `below`."""

    window_s: float
    below: int = VALUES


@dataclass(frozen=True, slots=True)
class Input:
    """Files of both streams that arrive together, pair by pair; the last pair only ends the streams."""

    paths: tuple[Sequence[Path], Sequence[Path]]
    rows_per_file: int

    @property
    def files(self) -> int:
        return len(self.paths[0])

    def expected(self, join: WindowedJoin, files: int) -> int:
        """How many pairs there are in the first files, as far as both streams have come."""
        read = [pa.concat_tables([pq.read_table(path) for path in paths[:files]]) for paths in self.paths]
        keys, values, times = ([_numbers(table, name) for table in read] for name in ("k", "v", "ts"))
        until = min(int(ts[-1]) for ts in times)
        here = [(ts < until) & (keys[side] >= 0) for side, ts in enumerate(times)]
        here[0] &= values[0] < join.below
        left, right = (keys[side][here[side]] * _KEY_SPAN + times[side][here[side]] for side in (0, 1))
        right.sort()
        length = round(join.window_s * _SECOND)
        first = np.searchsorted(right, left - length, side="right")
        return int((np.searchsorted(right, left + length, side="left") - first).sum())


def _numbers(table: pa.Table, name: str) -> NDArray[np.int64]:
    return np.asarray(table.column(name).cast(pa.int64()).to_numpy())


def write_input(folder: Path, files: int, rows_per_file: int, keys: int, rows_per_s: int) -> Input:
    """Uniform keys, values and times, in the order of time."""
    paths: tuple[list[Path], list[Path]] = ([], [])
    span = rows_per_file * _SECOND // rows_per_s
    for side, stream in enumerate(STREAMS):
        (folder / stream).mkdir(parents=True)
        for number in range(files):
            chance = np.random.default_rng((side, number))
            times = number * span + np.sort(chance.integers(0, span, rows_per_file))
            found = (
                chance.integers(0, keys, rows_per_file),
                chance.integers(0, VALUES, rows_per_file),
                times,
            )
            paths[side].append(_write(folder / stream / f"{number:05d}.parquet", *found))
        last = (np.array([-1 - side]), np.array([0]), np.array([files * span + _SECOND]))
        paths[side].append(_write(folder / stream / f"{files:05d}.parquet", *last))
    return Input(paths, rows_per_file)


def _write(path: Path, keys: NDArray[np.int64], values: NDArray[np.int64], times: NDArray[np.int64]) -> Path:
    table = pa.table({"k": keys, "v": values, "ts": pa.array(times, pa.timestamp("us", tz="UTC"))})
    pq.write_table(table, path)
    return path


@dataclass
class MillJoins:
    """All joins in one mill."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    joins: Sequence[WindowedJoin]
    mill: Mill = field(init=False)

    def start(self) -> None:
        self.mill = Mill(self.spark, self.folder / "home")
        for stream in STREAMS:
            source = f"path '{self.folder / stream}', maxFilesPerTrigger {self.files_per_batch}"
            self.mill.execute(
                f"CREATE STREAM {stream} ({SCHEMA}) ORDER BY ts USING parquet OPTIONS ({source})"
            )
        for number, join in enumerate(self.joins):
            window = f"RANGE {round(join.window_s * 1000)} MILLISECONDS"
            selected = f" AND a.v < {join.below}" if join.below < VALUES else ""
            self.mill.execute(
                f"CREATE QUERY q{number} AS SELECT a.k, a.v, b.v AS w FROM a [{window}], b [{window}] "
                f"WHERE a.k = b.k{selected}"
            )
        self.mill.start()

    def finish(self, expected: Sequence[int]) -> None:
        wait_for_counts(self.counts, expected, self.mill.check)

    def counts(self) -> list[int]:
        return [self.mill.queries[f"q{number}"].metrics().rows for number in range(len(self.joins))]

    def state_rows(self) -> int:
        """Rows in state slices, in all buckets."""
        dispatcher = self.mill.dispatcher
        with dispatcher.paused():
            dispatcher.checkpoint(dispatcher.units.values())
        return sum(held.rows for held in slices_of(self.mill.home))

    def stop(self) -> None:
        self.mill.close()


@dataclass
class SparkJoins(SparkQueries):
    """One streaming query for each join, whose results become Parquet files."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    joins: Sequence[WindowedJoin]

    def start(self) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        for number, join in enumerate(self.joins):
            a, b = (self._stream(stream) for stream in STREAMS)
            length = f"INTERVAL {round(join.window_s * _SECOND)} MICROSECONDS"
            within = F.expr(f"ka = kb AND tsb > tsa - {length} AND tsb < tsa + {length}")
            joined = a.where(f"va < {join.below}").join(b, within).select("ka", "va", "vb")
            writer = self._sink(joined.writeStream, number).outputMode("append")
            writer = writer.option("checkpointLocation", str(self.folder / f"checkpoint-{number}"))
            with own_settings(self.spark):
                self._queries.append(writer.trigger(processingTime="50 milliseconds").start())

    def counts(self) -> list[int]:
        return [
            sum(pq.read_metadata(path).num_rows for path in self._results(number).glob("*.parquet"))
            for number in range(len(self.joins))
        ]

    def _results(self, number: int) -> Path:
        return self.folder / f"results-{number}"

    def _sink(self, writer: DataStreamWriter, number: int) -> DataStreamWriter:
        return writer.format("parquet").option("path", str(self._results(number)))

    def _stream(self, stream: str) -> DataFrame:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self.files_per_batch)
        frame = reader.parquet(str(self.folder / stream)).withWatermark("ts", "1 second")
        return frame.withColumnsRenamed({name: f"{name}{stream}" for name in ("k", "v", "ts")})


@dataclass
class SparkJoinsDropping(SparkJoins):
    """The same, with results that are only counted."""

    def counts(self) -> list[int]:
        return SparkQueries.counts(self)

    def _sink(self, writer: DataStreamWriter, number: int) -> DataStreamWriter:  # noqa: ARG002 - nowhere
        return writer.format("noop")


@dataclass
class Arrivals:
    """The folders of both streams in a run's own folder."""

    folder: Path
    feeds: list[Feed] = field(init=False)

    def __post_init__(self) -> None:
        self.feeds = [Feed(self.folder / stream) for stream in STREAMS]

    def arrive(self, files: Input, first: int, end: int) -> None:
        for feed, paths in zip(self.feeds, files.paths, strict=True):
            feed.arrive(paths[first:end])

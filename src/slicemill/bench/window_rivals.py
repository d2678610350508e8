"""Means over sliding windows of a folder of Parquet files: by slicemill, and by Spark's own streaming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from slicemill.bench.events import SCHEMA, Expected
from slicemill.bench.rivals import POLL_MS, SparkQueries, own_settings
from slicemill.bench.waiting import wait_for_counts
from slicemill.engine.mill import Mill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class WindowSide(Protocol):
    """A streaming system with an aggregate for each range, in seconds."""

    def __init__(
        self, spark: SparkSession, folder: Path, files_per_batch: int, ranges: Sequence[int], home: Path
    ) -> None: ...

    def start(self) -> None: ...

    def finish(self, expected: Sequence[int]) -> None:
        """Wait until there are so many results of each aggregate."""

    def counts(self) -> list[int]: ...

    def differences(self, expected: Expected) -> int:
        """Results that are wrong, as far as they are kept."""

    def stop(self) -> None: ...


@dataclass
class MillWindows:
    """All aggregates in one mill."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    ranges: Sequence[int]
    home: Path
    mill: Mill = field(init=False)

    def start(self) -> None:
        self.mill = Mill(self.spark, self.home, poll_ms=POLL_MS)
        source = f"path '{self.folder}', maxFilesPerTrigger {self.files_per_batch}"
        script = [f"CREATE STREAM event ({SCHEMA}) ORDER BY ts USING parquet OPTIONS ({source});"]
        for number, range_s in enumerate(self.ranges):
            script.append(
                f"CREATE QUERY q{number} AS SELECT k, avg(v) AS mean, window_end() AS e "
                f"FROM event [RANGE {range_s} SECONDS SLIDE 1 SECOND] GROUP BY k;"
            )
        self.mill.execute("\n".join(script))
        self.mill.start()

    def finish(self, expected: Sequence[int]) -> None:
        wait_for_counts(self.counts, expected, self.mill.check)
        self.mill.check()

    def counts(self) -> list[int]:
        return [self.mill.queries[f"q{number}"].metrics().rows for number in range(len(self.ranges))]

    def differences(self, expected: Expected) -> int:
        return sum(
            expected.differences(range_s, self.mill.queries[f"q{number}"].to_arrow())
            for number, range_s in enumerate(self.ranges)
        )

    def stop(self) -> None:
        self.mill.close()


@dataclass
class SparkWindows(SparkQueries):
    """A streaming query for each aggregate."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    ranges: Sequence[int]
    home: Path

    def start(self) -> None:
        from pyspark.sql import functions as F  # noqa: N812

        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self.files_per_batch)
        with own_settings(self.spark):
            for number, range_s in enumerate(self.ranges):
                events = reader.parquet(str(self.folder)).withWatermark("ts", "0 seconds")
                windows = F.window("ts", f"{range_s} seconds", "1 second")
                writer = events.groupBy(windows, "k").agg(F.avg("v")).writeStream.format("noop")
                writer = writer.outputMode("append").option(
                    "checkpointLocation", str(self.home / str(number))
                )
                self._queries.append(writer.trigger(processingTime=f"{POLL_MS} milliseconds").start())

    def finish(self, expected: Sequence[int]) -> None:
        super().finish(expected)
        # Windows come out in the batch after the one that has moved the watermark.
        wait_for_counts(self.counts, expected)

    def differences(self, expected: Expected) -> int:  # noqa: ARG002 - the noop sink keeps nothing
        return 0

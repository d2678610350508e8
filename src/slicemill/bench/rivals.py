"""Filters over a folder of Parquet files, as streams: by slicemill, and by Spark's own streaming.

Both run in one session, poll as often, and take as many files a batch. slicemill writes the rows that pass
to the queries' result logs. Spark, with a streaming query for each filter, gives them to its noop sink, which
only counts. A side is started, takes in what arrives, and says how many rows passed each filter so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from slicemill.bench.bids import COLUMNS, SCHEMA
from slicemill.bench.waiting import wait_for_counts
from slicemill.engine.mill import Mill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_MS = 50

# What `engine.session` sets otherwise, as it is by default.
_SPARKS_OWN = {"spark.sql.codegen.hugeMethodLimit": "65535"}


class Side(Protocol):
    """A streaming system with filters registered."""

    def start(self) -> None: ...

    def finish(self, expected: Sequence[int]) -> None:
        """Wait until all that has arrived is through, `expected` rows for each filter."""

    def counts(self) -> list[int]:
        """Rows that passed each filter since the start."""

    def stop(self) -> None: ...


def expected_counts(spark: SparkSession, paths: Iterable[Path], conditions: Sequence[str]) -> list[int]:
    """What both sides should count, by a batch query."""
    from pyspark.sql import functions as F  # noqa: N812

    frame = spark.read.schema(SCHEMA).parquet(*map(str, paths))
    row = frame.agg(*(F.count_if(F.expr(condition)) for condition in conditions)).head()
    assert row is not None
    return [int(count) for count in row]


@contextmanager
def own_settings(spark: SparkSession) -> Iterator[None]:
    """Spark as it comes, for queries that are started in this block: what suits us need not suit it."""
    ours = {name: str(spark.conf.get(name)) for name in _SPARKS_OWN}
    try:
        for name, value in _SPARKS_OWN.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in ours.items():
            spark.conf.set(name, value)


@dataclass
class SparkQueries:
    """Spark's own streaming queries, whose results a noop sink counts."""

    _queries: list[StreamingQuery] = field(init=False, default_factory=list)

    def finish(self, expected: Sequence[int]) -> None:  # noqa: ARG002 - it knows by itself
        for query in self._queries:
            query.processAllAvailable()

    def counts(self) -> list[int]:
        # A trigger without input says -1.
        return [
            sum(max(0, batch.sink.numOutputRows) for batch in query.recentProgress) for query in self._queries
        ]

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


@dataclass
class SparkSide(SparkQueries):
    """One streaming query for each filter."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    conditions: Sequence[str]
    checkpoints: Path

    def start(self) -> None:
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", self.files_per_batch)
        with own_settings(self.spark):
            for number, condition in enumerate(self.conditions):
                writer = reader.parquet(str(self.folder)).where(condition).writeStream.format("noop")
                writer = writer.option("checkpointLocation", str(self.checkpoints / str(number)))
                self._queries.append(writer.trigger(processingTime=f"{POLL_MS} milliseconds").start())


@dataclass
class MillSide:
    """All filters in one mill."""

    spark: SparkSession
    folder: Path
    files_per_batch: int
    conditions: Sequence[str]
    home: Path
    mill: Mill = field(init=False)

    def start(self) -> None:
        self.mill = Mill(self.spark, self.home, poll_ms=POLL_MS)
        source = f"path '{self.folder}', maxFilesPerTrigger {self.files_per_batch}"
        self.mill.execute(f"CREATE STREAM bid ({SCHEMA}) ORDER BY ts USING parquet OPTIONS ({source})")
        for number, condition in enumerate(self.conditions):
            self.mill.execute(f"CREATE QUERY q{number} AS SELECT {COLUMNS} FROM bid WHERE {condition}")
        self.mill.start()

    def finish(self, expected: Sequence[int]) -> None:
        wait_for_counts(self.counts, expected, self.mill.check)

    def counts(self) -> list[int]:
        return [self.mill.queries[f"q{number}"].metrics().rows for number in range(len(self.conditions))]

    def stop(self) -> None:
        self.mill.close()

"""Generators as data sources of Spark, for use without the slicemill engine.

    register(spark)
    spark.readStream.format("nexmark").options(stream="bid", events=1_000_000).load()

The options are described in `generator`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from slicemill.connectors.generators.generator import Generator, generator_of
from slicemill.errors import SlicemillError
from slicemill.time import wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the formats nexmark, rfid and highway in a Spark session."""
    for source in SOURCES.values():
        spark.dataSource.register(source)


class EventRange(InputPartition):
    """Spark partition with the events first <= n < last."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__((first, last))
        self.first = first
        self.last = last


def ranges(generator: Generator, first: int, last: int) -> list[InputPartition]:
    """Split the events first <= n < last into Spark partitions."""
    count = max(1, min(generator.pace.partitions, (last - first) // generator.per_task))
    edges = [first + (last - first) * part // count for part in range(count + 1)]
    return [EventRange(a, b) for a, b in pairwise(edges) if a < b]


def batches(generator: Generator, events: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition's events in batches."""
    if not isinstance(events, EventRange):
        return  # Spark's placeholder for an empty read
    for first in range(events.first, events.last, generator.per_batch):
        yield from generator.rows(first, min(first + generator.per_batch, events.last))[0].to_batches()


class GeneratorBatchReader(DataSourceReader):
    """Batch reader of Spark, of which each task creates the generator from its options."""

    def __init__(self, form: str, options: Mapping[str, str]) -> None:
        self._form = form
        self._options = dict(options)

    def partitions(self) -> list[InputPartition]:
        generator = generator_of(self._form, self._options)
        return ranges(generator, 0, generator.finite if generator.events is None else generator.events)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(generator_of(self._form, self._options), partition)


class GeneratorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming reader of Spark with offsets `{"event": n, "since_us": t}`.

    The events below n have been read. The clock of the generator started at the time t.
    """

    def __init__(self, form: str, options: Mapping[str, str]) -> None:
        self._form = form
        self._options = dict(options)
        generator = generator_of(form, options)
        self._what, self._events, self._rate, self._pace = (
            generator.what,
            generator.events,
            generator.rate,
            generator.pace,
        )
        self._since_us: int | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"event": 0, "since_us": wall_clock_us()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._pace.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        if self._events is None and not self._pace.limited:
            raise SlicemillError(
                f"an endless {self._what} stream that runs as fast as possible has no end to run to; "
                "say how long it is, or give it another trigger"
            )
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        self._since_us = start["since_us"]
        available = self._available(self._since_us)
        if self._draining:
            # This streaming run ends at the current event. Later events belong to the next run.
            self._target = available if self._target is None else self._target
            available = self._target
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._pace.max_per_trigger
        if isinstance(limit, ReadAllAvailable) and available is not None:
            most = None
        ends = [
            end for end in (available, None if most is None else start["event"] + most) if end is not None
        ]
        return {"event": max(start["event"], min(ends)), "since_us": self._since_us}

    def _available(self, since_us: int) -> int | None:
        """Return the number of events that have appeared, or None without a rate limit."""
        if not self._pace.limited:
            return self._events
        elapsed_us = max(0, wall_clock_us() - since_us)
        appeared = int(elapsed_us * self._rate / 1_000_000)
        return appeared if self._events is None else min(appeared, self._events)

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        available = None if self._since_us is None else self._available(self._since_us)
        if available is None or self._since_us is None:
            return None
        return {"event": available, "since_us": self._since_us}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return ranges(generator_of(self._form, self._options), start["event"], end["event"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(generator_of(self._form, self._options), partition)


class _GeneratorSource(DataSource):
    """Base class of the Spark data sources of generators.

    Each format has a class, because Spark gets the name of a format from the class.
    """

    form: str

    @classmethod
    def name(cls) -> str:
        return cls.form

    def schema(self) -> StructType:
        return from_arrow_schema(generator_of(self.form, self.options).fields)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return GeneratorBatchReader(self.form, self.options)

    # Spark passes the schema as a keyword argument.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return GeneratorStreamReader(self.form, self.options)


class NexmarkSource(_GeneratorSource):
    form = "nexmark"


class RfidSource(_GeneratorSource):
    form = "rfid"


class HighwaySource(_GeneratorSource):
    form = "highway"


SOURCES: dict[str, type[DataSource]] = {
    source.form: source for source in (NexmarkSource, RfidSource, HighwaySource)
}

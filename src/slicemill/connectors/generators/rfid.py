"""RFID readings as a Spark data source (M48).

    spark.dataSource.register(RfidSource)
    spark.readStream.format("rfid").option("stream", "reading").option("tags", 50).load()

An offset is the number of a slot of time, whose readings appear together when the slot is over. Options:
`tags` (new ones per second), `repeats`, `gap` (between two readings of a tag, ms), `noise` (the share of
readings), `readers`, `seconds` (how long tags come; none: for ever), `seed`, `start` (µs), and those of all
generators, where an event is a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from slicemill.connectors.generators.paced import EventRange, Pace, PacedStreamReader, pace_of
from slicemill.sources import rfid
from slicemill.sources.reader import PACE_OPTIONS

_FIELDS = pa.schema([("reader", pa.int32()), ("tag", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
_SLOTS_PER_BATCH = 100
_SLOTS_PER_TASK = 100


@dataclass(frozen=True, slots=True)
class RfidOptions:
    tags: rfid.Tags
    pace: Pace


def rfid_options(given: Mapping[str, str]) -> RfidOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    tags = rfid.tags_of(options.pop("stream", ""), options, ignored=PACE_OPTIONS)
    pace = pace_of("RFID", options, events=tags.slots, rate=rfid.SLOTS_PER_SECOND, per_task=_SLOTS_PER_TASK)
    return RfidOptions(tags, pace)


def _batches(tags: rfid.Tags, slots: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(slots, EventRange):
        return  # what Spark passes where there is nothing to read
    for first in range(slots.first, slots.last, _SLOTS_PER_BATCH):
        columns = tags.readings(first, min(first + _SLOTS_PER_BATCH, slots.last))
        yield pa.record_batch([pa.array(columns[f.name]).cast(f.type) for f in _FIELDS], schema=_FIELDS)


class RfidSource(DataSource):
    """The `rfid` format."""

    @classmethod
    def name(cls) -> str:
        return "rfid"

    def schema(self) -> str:
        return "reader INT, tag BIGINT, at TIMESTAMP"

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return RfidReader(rfid_options(self.options))

    # Spark passes the schema by name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return RfidStreamReader(rfid_options(self.options))


class RfidReader(DataSourceReader):
    """A finite read: without `seconds`, as many as the reference engine makes."""

    def __init__(self, options: RfidOptions) -> None:
        endless = options.tags.seconds is None
        self._tags = replace(options.tags, seconds=rfid.FINITE_SECONDS) if endless else options.tags
        self._pace = options.pace

    def partitions(self) -> list[InputPartition]:
        return self._pace.ranges(0, self._tags.slots or 0)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._tags, partition)


class RfidStreamReader(PacedStreamReader):
    def __init__(self, options: RfidOptions) -> None:
        super().__init__(options.pace)
        self._tags = options.tags

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._tags, partition)

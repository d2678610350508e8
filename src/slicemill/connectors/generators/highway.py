"""The synthetic highway as a Spark data source (M57).

    spark.dataSource.register(HighwaySource)
    spark.readStream.format("highway").option("stream", "road").option("segments", 4).load()

An offset is the number of a slot of five minutes, whose rows appear together; in a stream a slot takes a
tenth of a second, unless `speed` says otherwise. Options: `segments`, `days` (how long; none: for ever),
`first` (the first day), `seed`, `start` (µs), and those of all generators, where an event is a slot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from slicemill.connectors.generators.paced import EventRange, Pace, PacedStreamReader, pace_of
from slicemill.sources import highway
from slicemill.sources.reader import PACE_OPTIONS

_FIELDS = pa.schema(
    [
        ("segment", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("hour", pa.float64()),
        ("speed", pa.float64()),
        ("volume", pa.float64()),
        ("occupancy", pa.float64()),
        ("speed_behind", pa.float64()),
        ("speed_ahead", pa.float64()),
        ("jam", pa.bool_()),
    ]
)
_SLOTS_PER_SECOND = 10


@dataclass(frozen=True, slots=True)
class HighwayOptions:
    road: highway.Highway
    pace: Pace


def highway_options(given: Mapping[str, str]) -> HighwayOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    road = highway.highway_of(options.pop("stream", ""), options, ignored=PACE_OPTIONS)
    per_task = highway.SLOTS_PER_DAY
    pace = pace_of("The highway", options, events=road.slots, rate=_SLOTS_PER_SECOND, per_task=per_task)
    return HighwayOptions(road, pace)


def _batches(road: highway.Highway, slots: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(slots, EventRange):
        return  # what Spark passes where there is nothing to read
    for first in range(slots.first, slots.last, highway.SLOTS_PER_DAY):
        columns = road.rows(first, min(first + highway.SLOTS_PER_DAY, slots.last))
        yield pa.record_batch([pa.array(columns[f.name]).cast(f.type) for f in _FIELDS], schema=_FIELDS)


class HighwaySource(DataSource):
    """The `highway` format."""

    @classmethod
    def name(cls) -> str:
        return "highway"

    def schema(self) -> str:
        return (
            "segment INT, at TIMESTAMP, hour DOUBLE, speed DOUBLE, volume DOUBLE, occupancy DOUBLE, "
            "speed_behind DOUBLE, speed_ahead DOUBLE, jam BOOLEAN"
        )

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        return HighwayReader(highway_options(self.options))

    # Spark passes the schema by name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return HighwayStreamReader(highway_options(self.options))


class HighwayReader(DataSourceReader):
    """A finite read: without `days`, as many as the reference engine makes."""

    def __init__(self, options: HighwayOptions) -> None:
        endless = options.road.days is None
        self._road = replace(options.road, days=highway.FINITE_DAYS) if endless else options.road
        self._pace = options.pace

    def partitions(self) -> list[InputPartition]:
        return self._pace.ranges(0, self._road.slots or 0)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._road, partition)


class HighwayStreamReader(PacedStreamReader):
    def __init__(self, options: HighwayOptions) -> None:
        super().__init__(options.pace)
        self._road = options.road

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(self._road, partition)

"""NEXMark as a Spark data source: exact, replayable, limited and drained as asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from slicemill.connectors.generators import nexmark as nexmark_source
from slicemill.connectors.generators import paced as paced_source
from slicemill.connectors.generators.nexmark import NexmarkSource, NexmarkStreamReader, nexmark_options
from slicemill.errors import SlicemillError
from slicemill.sources import nexmark

# Spark reads DDL, also without a query.
pytestmark = pytest.mark.usefixtures("spark")


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> Iterator[SparkSession]:
    spark.dataSource.register(NexmarkSource)
    yield spark


def expected(stream: str, first: int, last: int, **options: float) -> list[tuple[object, ...]]:
    columns = nexmark.columns(stream, first, last, **options)  # type: ignore[arg-type]
    return sorted(zip(*(column.tolist() for column in columns.values()), strict=True))


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    columns = []
    for column in table.columns:
        instant = pa.types.is_timestamp(column.type)
        columns.append((column.cast(pa.int64()) if instant else column).to_pylist())
    return sorted(zip(*columns, strict=True))


def drained(frame: DataFrame, folder: Path) -> list[pa.Table]:
    """Run to the end of what there is; the rows of each micro-batch."""
    tables: list[pa.Table] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: tables.append(batch.toArrow()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return tables


@pytest.mark.parametrize("stream", nexmark.STREAMS)
def test_a_batch_read_gives_the_rows_of_the_generator(registered: SparkSession, stream: str) -> None:
    frame = registered.read.format("nexmark").options(stream=stream, events=5_000, seed=7).load()
    assert rows_of(frame.toArrow()) == expected(stream, 0, 5_000, seed=7)


def test_available_now_drains_every_event_once_in_limited_batches(
    registered: SparkSession, tmp_path: Path
) -> None:
    frame = (
        registered.readStream.format("nexmark")
        .options(stream="bid", events=5_000, speed="as fast as possible", maxEventsPerTrigger=2_000)
        .load()
    )
    tables = drained(frame, tmp_path)
    assert [table.num_rows for table in tables] == [1_840, 1_840, 920]
    assert rows_of(pa.concat_tables(tables)) == expected("bid", 0, 5_000)


def test_a_rate_limited_stream_goes_on_where_its_checkpoint_ends(
    registered: SparkSession, tmp_path: Path
) -> None:
    options = {"stream": "bid", "events": "300", "rate": "1000000"}
    first = drained(registered.readStream.format("nexmark").options(**options).load(), tmp_path)
    again = drained(registered.readStream.format("nexmark").options(**options).load(), tmp_path)
    assert rows_of(pa.concat_tables(first + again)) == expected("bid", 0, 300, rate=1_000_000)


def test_a_wrong_option_is_named_by_spark(registered: SparkSession) -> None:
    with pytest.raises(Exception, match="NEXMark has no stream 'bidder'; it has person, auction, bid"):
        registered.read.format("nexmark").option("stream", "bidder").load()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("events", "many", "events is a whole number, not 'many'"),
        ("partitions", "0", "partitions is at least 1, not 0"),
        ("rate", "0", "rate is a number of events per second above 0, not '0'"),
        ("speed", "slow", "speed is rate-limited or as fast as possible, not 'slow'"),
    ],
)
def test_options_are_checked(option: str, value: str, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        nexmark_options({"stream": "bid", option: value})


def reader(**options: object) -> NexmarkStreamReader:
    given = {"stream": "bid", **{key: str(value) for key, value in options.items()}}
    schema = StructType.fromDDL(nexmark_source.SCHEMAS["bid"])
    return NexmarkStreamReader(nexmark_options(given), schema)


def test_partitions_and_batches_do_not_change_a_row() -> None:
    many = reader(partitions=3)
    start, end = {"event": 123, "since_us": 0}, {"event": 150_321, "since_us": 0}
    parts = many.partitions(start, end)
    assert len(parts) == 3
    table = pa.Table.from_batches([batch for part in parts for batch in many.read(part)])
    assert rows_of(table) == expected("bid", 123, 150_321)


def test_an_event_appears_when_the_clock_has_come_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = 1_000_000
    monkeypatch.setattr(paced_source.time, "time_ns", lambda: now_us * 1_000)
    source = reader(rate=10, events=35)
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    now_us += 1_250_000
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 12
    assert source.latestOffset(start, ReadMaxRows(5))["event"] == 5
    now_us += 100_000_000
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 35
    assert source.reportLatestOffset() == {"event": 35, "since_us": 1_000_000}


def test_a_drain_stops_at_what_there_was_when_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = 5_000_000
    monkeypatch.setattr(paced_source.time, "time_ns", lambda: now_us * 1_000)
    source = reader(rate=10)
    start = {"event": 0, "since_us": 0}
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 50
    now_us += 1_000_000
    assert source.latestOffset({"event": 50, "since_us": 0}, ReadAllAvailable())["event"] == 50


def test_an_endless_stream_is_limited_by_trigger_and_cannot_be_drained() -> None:
    source = reader(speed="as-fast-as-possible")
    limit = source.getDefaultReadLimit()
    assert source.latestOffset({"event": 7, "since_us": 0}, limit)["event"] == 1_000_007
    with pytest.raises(SlicemillError, match="has no end to run to"):
        source.prepareForTriggerAvailableNow()


def test_the_words_of_a_column_are_the_same_picked_by_arrow() -> None:
    plain = nexmark.columns("auction", 0, 500)["item"]
    picked = nexmark.columns(
        "auction", 0, 500, pick=lambda words, numbers: pa.array(words).take(pa.array(numbers))
    )["item"]
    assert np.array_equal(plain, np.array(picked))

"""Generators as Spark data sources: exact, replayable, limited, and drained with AvailableNow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.connectors.generators import nexmark, spark_source
from slicemill.connectors.generators.generator import generator_of
from slicemill.connectors.generators.spark_source import GeneratorStreamReader, register
from slicemill.errors import SlicemillError
from slicemill_oracle.runner import run_script

ROOT = Path(__file__).parents[2]

BATCHES: list[tuple[str, dict[str, str]]] = [
    *(("nexmark", {"stream": stream, "events": "5000", "seed": "7"}) for stream in nexmark.STREAMS),
    ("rfid", {"stream": "reading", "tags": "20", "seconds": "15", "seed": "7"}),
    ("highway", {"stream": "road", "segments": "2", "days": "2", "seed": "7"}),
]


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> Iterator[SparkSession]:
    register(spark)
    yield spark


def made(form: str, options: dict[str, str], first: int = 0, last: int | None = None) -> pa.Table:
    generator = generator_of(form, options)
    assert last is not None or generator.events is not None
    return generator.rows(first, generator.events or 0 if last is None else last)[0]


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def drained(frame: DataFrame, folder: Path) -> list[pa.Table]:
    """Run the stream to its current end; return the rows of each micro-batch."""
    tables: list[pa.Table] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: tables.append(batch.toArrow()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return tables


@pytest.mark.parametrize(("form", "options"), BATCHES)
def test_a_batch_read_returns_the_rows_of_the_generator(
    registered: SparkSession, form: str, options: dict[str, str]
) -> None:
    frame = registered.read.format(form).options(**options).load()
    assert rows_of(frame.toArrow()) == rows_of(made(form, options))


def test_available_now_drains_every_event_once_in_limited_batches(
    registered: SparkSession, tmp_path: Path
) -> None:
    options = {"stream": "bid", "events": "5000", "speed": "as fast as possible"}
    frame = registered.readStream.format("nexmark").options(**options, maxEventsPerTrigger=2_000).load()
    tables = drained(frame, tmp_path)
    assert [table.num_rows for table in tables] == [1_840, 1_840, 920]
    assert rows_of(pa.concat_tables(tables)) == rows_of(made("nexmark", options))


def test_a_rate_limited_stream_continues_from_its_checkpoint(
    registered: SparkSession, tmp_path: Path
) -> None:
    options = {"stream": "bid", "events": "300", "rate": "1000000"}
    first = drained(registered.readStream.format("nexmark").options(**options).load(), tmp_path)
    again = drained(registered.readStream.format("nexmark").options(**options).load(), tmp_path)
    assert rows_of(pa.concat_tables(first + again)) == rows_of(made("nexmark", options))


def test_spark_reports_an_invalid_option(registered: SparkSession) -> None:
    with pytest.raises(Exception, match="NEXMark has no stream 'bidder'; it has person, auction, bid"):
        registered.read.format("nexmark").option("stream", "bidder").load()


@pytest.mark.parametrize(
    ("form", "options", "events"),
    [
        ("nexmark", {"stream": "bid", "partitions": "3"}, (123, 150_321)),
        ("rfid", {"stream": "reading", "tags": "20", "partitions": "3"}, (0, 400)),
        ("highway", {"stream": "road", "partitions": "3"}, (0, 1_152)),
    ],
)
def test_partitions_and_batches_do_not_change_generated_rows(
    form: str, options: dict[str, str], events: tuple[int, int]
) -> None:
    reader = GeneratorStreamReader(form, options)
    start, end = ({"event": event, "since_us": 0} for event in events)
    parts = reader.partitions(start, end)
    assert len(parts) == 3
    table = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
    assert rows_of(table) == rows_of(made(form, options, *events))


def reader(**options: object) -> GeneratorStreamReader:
    return GeneratorStreamReader("nexmark", {"stream": "bid", **{k: str(v) for k, v in options.items()}})


def test_an_event_is_readable_when_the_clock_reaches_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = 1_000_000
    monkeypatch.setattr(spark_source, "wall_clock_us", lambda: now_us)
    source = reader(rate=10, events=35)
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable()) == start
    now_us += 1_250_000
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 12
    assert source.latestOffset(start, ReadMaxRows(5))["event"] == 5
    now_us += 100_000_000
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 35
    assert source.reportLatestOffset() == {"event": 35, "since_us": 1_000_000}


def test_a_drain_stops_at_the_events_that_existed_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    now_us = 5_000_000
    monkeypatch.setattr(spark_source, "wall_clock_us", lambda: now_us)
    source = reader(rate=10)
    start = {"event": 0, "since_us": 0}
    source.prepareForTriggerAvailableNow()
    assert source.latestOffset(start, ReadAllAvailable())["event"] == 50
    now_us += 1_000_000
    assert source.latestOffset({"event": 50, "since_us": 0}, ReadAllAvailable())["event"] == 50


def test_an_endless_stream_is_limited_for_each_trigger_and_cannot_be_drained() -> None:
    source = reader(speed="as-fast-as-possible")
    limit = source.getDefaultReadLimit()
    assert source.latestOffset({"event": 7, "since_us": 0}, limit)["event"] == 1_000_007
    with pytest.raises(SlicemillError, match="has no end to run to"):
        source.prepareForTriggerAvailableNow()


def test_words_picked_by_arrow_equal_words_picked_by_numpy() -> None:
    plain = nexmark.columns("auction", 0, 500)["item"]
    picked = nexmark.columns(
        "auction", 0, 500, pick=lambda words, numbers: pa.array(words).take(pa.array(numbers))
    )["item"]
    assert np.array_equal(plain, np.array(picked))


@pytest.mark.parametrize(
    ("example", "changes"),
    [
        pytest.param(
            "rfid.esl",
            {"seconds=20": "seconds=4&speed=as-fast-as-possible"},
            marks=pytest.mark.slow_cpu,
        ),
        ("traffic.esl", {"days=1&": "days=1&speed=as-fast-as-possible&", "days=21": "days=3"}),
    ],
)
def test_an_example_gives_the_rows_of_the_reference_engine(
    spark: SparkSession, tmp_path: Path, example: str, changes: dict[str, str]
) -> None:
    text = (ROOT / "examples" / example).read_text(encoding="utf-8")
    for old, new in changes.items():
        text = text.replace(old, new)
    with Mill(spark, tmp_path, folder=ROOT, subtasks=2) as mill:
        mill.execute(text)
        mill.drain()
        for query in run_script(bind(text).catalog, ROOT).queries:
            got = mill.queries[query.name]
            assert got.error is None
            assert sorted(got.rows(), key=repr) == sorted(query.rows, key=repr), query.name
            assert query.rows, query.name

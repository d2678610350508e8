"""Generators: reproducible rows, paced by the clock or as fast as the reader polls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Stream
from slicemill.connectors.finite import read_rows
from slicemill.connectors.generators import nexmark
from slicemill.connectors.generators.generator import GENERATORS, generator_of
from slicemill.connectors.registry import open_readers
from slicemill.errors import SlicemillError
from slicemill.ingest.reader import SourceBatch, SourceReader

BID = "auction bigint, bidder bigint, price bigint, channel varchar, ts timestamp"
NOW_US = 1_790_000_000_000_000
DAY_US = 86_400_000_000
READING = "reader int, tag bigint, at timestamp"
ROAD = "segment int, at timestamp, speed double, jam boolean"

FAST = {
    "nexmark://bid?events=3000&seed=7&speed=as-fast-as-possible": (BID, "ts"),
    "rfid://reading?tags=20&seconds=15&speed=as-fast-as-possible": (READING, "at"),
    "highway://road?days=2&segments=2&speed=as-fast-as-possible": (ROAD, "at"),
}


def declared(source: str, columns: str = BID, time: str = "ts") -> Stream:
    return bind(f"CREATE STREAM s ({columns}) ORDER BY {time} SOURCE '{source}'").catalog.declared_stream("s")


class Clock:
    def __init__(self, now_us: int = 1_000_000) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us


def opened(stream: Stream, clock: Clock | None = None) -> SourceReader:
    columns = stream.schema.names
    readers = open_readers(stream, columns, Path(), Path("spool"), lambda: None, clock or Clock())
    assert readers is not None
    return readers["0"]


def rows_of(batch: SourceBatch) -> list[tuple[object, ...]]:
    if batch.table is None:
        return []
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in batch.table.columns]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize("source", FAST)
def test_generated_rows_equal_those_of_the_reference_engine_in_any_batches(source: str) -> None:
    stream = declared(source, *FAST[source])
    reader = opened(stream)
    expected = list(read_rows(stream.source, stream.schema))
    found: list[tuple[object, ...]] = []
    offset = None
    ended = False
    for limit in (1, 10, 333, *[100_000] * 100):
        if ended:
            break
        batch = opened(stream).read(offset, limit) if limit == 10 else reader.read(offset, limit)
        found += rows_of(batch)
        offset, ended = batch.offset, batch.ended
    assert ended and found == expected


@given(first=st.integers(0, 200), stream=st.sampled_from(nexmark.STREAMS))
def test_following_returns_the_first_event_that_has_a_row(first: int, stream: str) -> None:
    generator = generator_of("nexmark", {"stream": stream})
    assert generator.following(first) == nexmark.event_numbers(stream, first, first + 60)[0]


def test_an_event_is_readable_when_the_clock_reaches_its_time() -> None:
    clock = Clock()
    reader = opened(declared("nexmark://bid?rate=10&events=35"), clock)
    start = reader.read(None, 1_000)
    assert start.table is None and start.offset["event"] == 0 and not start.more
    # Events 0 to 3 are a person and three auctions.
    assert start.again_us == 500_001
    clock.now_us += 500_000
    batch = reader.read(start.offset, 1_000)
    assert len(rows_of(batch)) == 1 and batch.offset["event"] == 5
    assert np.asarray(batch.arrival_us).tolist() == [1_500_000]
    clock.now_us += 725_000
    batch = reader.read(batch.offset, 3)
    assert batch.offset["event"] == 8 and batch.more
    assert np.asarray(batch.arrival_us).tolist() == [1_600_000, 1_700_000, 1_800_000]
    clock.now_us += 100_000_000
    batch = reader.read(batch.offset, 1_000)
    assert batch.offset["event"] == 35 and batch.ended and not batch.more


@pytest.mark.parametrize(
    ("source", "expected_us"),
    [
        ("nexmark://bid?rate=10", NOW_US + 400_000),
        ("nexmark://bid?rate=10&start=5000000", 5_400_000),
        ("nexmark://bid?rate=10&speed=as-fast-as-possible", 400_000),
        ("highway://road?segments=1", NOW_US - NOW_US % DAY_US),
    ],
)
def test_a_live_stream_starts_at_the_current_time_by_default(source: str, expected_us: int) -> None:
    clock = Clock(NOW_US)
    name = source.partition(":")[0]
    columns = {"nexmark": "ts timestamp", "highway": "at timestamp"}[name]
    reader = opened(declared(source, columns, columns.split()[0]), clock)
    start = reader.read(None, 100)
    clock.now_us += 1_000_000
    batch = start if start.table is not None else reader.read(start.offset, 100)
    assert batch.table is not None
    assert batch.table.column(columns.split()[0]).cast(pa.int64())[0].as_py() == expected_us


def test_the_offset_of_an_older_home_directory_keeps_its_timestamps() -> None:
    clock = Clock(NOW_US)
    batch = opened(declared("nexmark://bid?rate=10"), clock).read(
        {"event": 4, "since_us": NOW_US - 10**6}, 100
    )
    assert rows_of(batch)[0][-1] == 400_000


def test_a_fast_stream_is_polled_every_five_milliseconds_up_to_its_limit() -> None:
    clock = Clock()
    reader = opened(declared("nexmark://bid?rate=1000000&maxEventsPerTrigger=20"), clock)
    start = reader.read(None, 1_000)
    assert start.again_us == 5_000
    clock.now_us += 5_000
    batch = reader.read(start.offset, 1_000)
    assert batch.offset["event"] == 20 and batch.more and batch.again_us == 0


def test_an_endless_stream_without_rate_limit_always_has_more_rows() -> None:
    reader = opened(declared("nexmark://bid?speed=as-fast-as-possible"))
    batch = reader.read({"event": 10**9, "since_us": 0}, 50)
    assert batch.more and not batch.ended and batch.offset["event"] == 10**9 + 50


def test_generated_rows_that_do_not_fit_the_declaration_are_bad_rows() -> None:
    columns = "auction bigint, channel varchar(3), ts timestamp"
    batch = opened(declared("nexmark://bid?events=50&speed=as-fast-as-possible", columns)).read(None, 100)
    assert batch.errors is not None and batch.table is not None
    assert set(batch.table["channel"].to_pylist()) == {"app", "web"}
    assert set(batch.errors["reason"].to_pylist()) <= {
        "column channel: 'phone' is no VARCHAR(3)",
        "column channel: 'partner' is no VARCHAR(3)",
    }
    assert batch.table.num_rows + batch.errors.num_rows == 46


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("nexmark://bidder", "NEXMark has no stream 'bidder'; it has person, auction, bid"),
        ("nexmark://bid?events=many", "events is an integer, not 'many'"),
        ("nexmark://bid?partitions=0", "partitions is at least 1, not 0"),
        ("nexmark://bid?rate=0", "rate is a number of events per second above 0, not '0'"),
        ("nexmark://bid?speed=slow", "speed is rate-limited or as fast as possible, not 'slow'"),
        ("nexmark://person", "the source has no column auction, bidder, price, channel; it has id, name"),
        ("rfid://door", "rfid:// has no stream 'door'"),
        ("rfid://reading?tag=5", "rfid:// has no option tag"),
        ("rfid://reading?partitions=0", "RFID's option partitions is at least 1, not 0"),
        ("highway://road?lane=1", "highway:// has no option lane"),
    ],
)
def test_options_are_checked_before_the_first_read(source: str, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        opened(declared(source))


def test_the_registry_lists_every_generator() -> None:
    assert set(GENERATORS) == {"highway", "nexmark", "rfid"}

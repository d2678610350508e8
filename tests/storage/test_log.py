"""The index of a log: epochs, extents and row counts, memory use, and freed epochs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slicemill.storage.garbage import Retention, keep_from, slowest
from slicemill.storage.log import Log, read_epochs
from slicemill.storage.segments import Extent, SegmentWriter
from storage.faulty_files import MemoryFiles
from storage.tables import COLUMNS, rows, stored

FOLDER = Path("/log")


def new_log(files: MemoryFiles | None = None) -> Log:
    return Log("bid", FOLDER, COLUMNS, files or MemoryFiles())


def filled(*numbers: int, rows_each: int = 10) -> Log:
    """Return a log with one epoch for each number, which is also its arrival time and timestamp."""
    log = new_log()
    for number in numbers:
        log.append(number, [Extent("w-0.arrows", number * 100, 100, rows_each)], number, number, number)
    return log


def numbers(log: Log, after: int = -1, upto: int | None = None) -> list[int]:
    return [epoch.number for epoch in log.epochs(after, upto)]


def test_a_new_log_is_empty() -> None:
    log = new_log()
    assert (log.first, log.head, log.max_ts, log.rows, log.bytes, len(log)) == (0, -1, None, 0, 0, 0)
    assert log.epochs() == [] and log.rows_after(-1) == 0


def test_epochs_are_found_by_cursor_across_gaps_in_their_numbers() -> None:
    log = filled(3, 7, 20)
    assert numbers(log) == [3, 7, 20]
    assert numbers(log, after=3) == [7, 20]
    assert numbers(log, after=5, upto=7) == [7]
    assert numbers(log, after=5, upto=6) == []
    assert numbers(log, after=20) == []
    assert [log.rows_after(after) for after in (-1, 3, 19, 20)] == [30, 20, 10, 0]
    assert (log.head, log.max_ts) == (20, 20)


def test_an_epoch_has_its_extents_and_totals() -> None:
    log = new_log()
    extents = (Extent("w-0.arrows", 8, 100, 3), Extent("v-2.arrows", 16, 50, 2))
    log.append(5, [list(extent) for extent in extents], -4, 9, 77)
    log.append(6, [], None, None, 78)
    first, second = log.epochs()
    assert first == (5, extents, 5, 150, -4, 9, 77)
    assert second == (6, (), 0, 0, None, None, 78)
    assert (log.rows, log.bytes, log.max_ts) == (5, 150, 9)


def test_the_greatest_timestamp_never_decreases_and_survives_freed_epochs() -> None:
    log = filled(9)
    log.append(10, [Extent("w-0.arrows", 0, 1, 1)], 2, 4, 0)
    log.free(11)
    assert (log.max_ts, log.head, log.first) == (9, 10, 11)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3), st.integers(0, 3), st.sampled_from(("", "free", "fold")), st.integers(0, 12)
        ),
        max_size=40,
    )
)
def test_an_index_contains_all_epochs_that_were_appended_and_not_freed(
    steps: list[tuple[int, int, str, int]],
) -> None:
    log, expected, number, offset = new_log(), [], 0, 0
    segments: dict[str, int] = {}
    emptied: list[str] = []
    for gap, extents, step, back in steps:
        number += gap
        made = [Extent(f"w-{(offset + i) // 5}.arrows", offset + i, i + 1, i) for i in range(extents)]
        offset += extents
        log.append(number, made, number, number + 1, number)
        expected.append((number, made))
        for extent in made:
            segments[extent.segment] = segments.get(extent.segment, 0) + 1
        if step:
            first = number - back
            gone_by_now = [kept for kept in expected if kept[0] < first]
            base: list[Extent] = []
            if step == "fold" and gone_by_now:
                base = [Extent(f"base{number}-0.arrows", 0, 7, 2)]
                segments[base[0].segment] = 1
                emptied += log.fold(gone_by_now[-1][0], base, 1, 2, 3)
                assert log.base == log.freed == gone_by_now[-1][0]
            else:
                emptied += log.free(first)
            for _, gone in [kept for kept in expected if kept[0] < first]:
                for extent in gone:
                    segments[extent.segment] -= 1
            expected = [kept for kept in expected if kept[0] >= first]
            if base:
                expected.insert(0, (log.freed, base))
    copy = new_log()
    copy.load(log.dump())
    for index in (log, copy):
        assert [(epoch.number, list(epoch.extents)) for epoch in index.epochs()] == expected
        for position, (after, _) in enumerate(expected):
            left = expected[position + 1 :]
            assert index.rows_after(after) == sum(extent.rows for _, made in left for extent in made)
        assert index.rows == sum(extent.rows for _, made in expected for extent in made)
        assert index.bytes == sum(extent.length for _, made in expected for extent in made)
        assert sorted(index.segments_in_use()) == sorted(name for name, count in segments.items() if count)
    assert set(emptied) >= {name for name, count in segments.items() if not count}


def test_a_segment_is_superseded_when_its_writer_has_a_later_segment() -> None:
    log = new_log()
    log.append(0, [Extent("w-0.arrows", 0, 1, 1), Extent("v-0.arrows", 0, 1, 1)], 0, 0, 0)
    assert not log.is_superseded("w-0.arrows")
    log.append(1, [Extent("w-1.arrows", 0, 1, 1)], 0, 0, 0)
    assert log.is_superseded("w-0.arrows")
    assert not log.is_superseded("v-0.arrows") and not log.is_superseded("w-1.arrows")
    assert log.free(1) == ["w-0.arrows", "v-0.arrows"]
    assert log.is_used("w-1.arrows") and not log.is_used("w-0.arrows")


def test_rows_are_read_in_order_of_timestamp_and_sequence_number() -> None:
    files = MemoryFiles()
    log = new_log(files)
    one, other = (SegmentWriter(FOLDER, name, files=files) for name in ("a", "b"))
    log.append(0, [one.append(rows(1, 5, 5)), other.append(rows(2, 5, seq=10))], 1, 5, 0)
    log.append(1, [one.append(rows(3, 6, seq=20)), one.append(rows())], 3, 6, 0)
    first, second = log.epochs()
    assert [row["_seq"] for row in log.read(first).to_pylist()] == [0, 10, 1, 2, 11]
    assert log.read(second).equals(rows(3, 6, seq=20))
    merged = read_epochs(FOLDER, COLUMNS, [first, second], files=files)
    assert merged.column("_ts").to_pylist() == [1, 2, 3, 5, 5, 5, 6]
    assert read_epochs(FOLDER, COLUMNS, [], files=files).equals(rows())


def test_unstored_columns_are_null_unless_the_reader_requires_them() -> None:
    files = MemoryFiles()
    columns = pa.schema([("n", pa.int64()), ("m", pa.string())])
    log = Log("bid", FOLDER, columns, files)
    writer = SegmentWriter(FOLDER, "w", files=files)
    bare = pa.table({"_ts": pa.array([4], pa.int64()), "n": pa.array([1], pa.int32())})
    full = stored([(5, 1, 2, 3)]).append_column("m", pa.array(["x"]))
    log.append(0, [writer.append(bare), writer.append(full)], 4, 5, 80)
    epoch = log.epochs()[0]
    assert log.read(epoch).to_pylist() == [
        {"_ts": 4, "_seq": 0, "_arr": 80, "n": 1, "m": None},
        {"_ts": 5, "_seq": 1, "_arr": 2, "n": 3, "m": "x"},
    ]
    assert log.read(epoch, needed=frozenset(["m"])).column("_ts").to_pylist() == [5]


def test_an_index_takes_less_than_a_hundred_bytes_for_each_epoch() -> None:
    tracemalloc.start()
    try:
        log = filled(*range(20_000))
        used = tracemalloc.get_traced_memory()[0]
        assert used < 20_000 * 100
        for first in range(0, 20_000, 1_000):
            log.free(first)
        assert tracemalloc.get_traced_memory()[0] < used / 5
    finally:
        tracemalloc.stop()
    assert numbers(log) == list(range(19_000, 20_000))


def test_an_epoch_is_freed_after_all_readers_and_the_retention_time() -> None:
    log = filled(10, 20, 30, 40)
    assert slowest([{"bid": 20, "ask": 3}, {"bid": 30}], "bid") == 20
    assert slowest([{"ask": 3}], "bid") is None
    assert keep_from(log, 20, Retention(), now_us=1_000) == 21
    assert keep_from(log, None, Retention(), now_us=1_000) == 41
    assert keep_from(log, -1, Retention(), now_us=1_000) <= log.first
    assert keep_from(log, 30, Retention(age_us=100), now_us=125) == 30
    assert keep_from(log, 40, Retention(epochs=3), now_us=1_000) == 20
    assert keep_from(log, 40, Retention(epochs=9), now_us=1_000) == 10
    log.free(21)
    assert keep_from(log, 10, Retention(), now_us=1_000) <= log.first
    assert keep_from(new_log(), None, Retention(), now_us=1_000) == 0


def test_an_epoch_with_a_future_arrival_time_retains_later_epochs_until_that_time() -> None:
    log = new_log()
    for number, arrival_us in enumerate([5, 900, 6]):
        log.append(number, [Extent("w-0.arrows", 0, 1, 1)], 0, 0, arrival_us)
    assert keep_from(log, 2, Retention(), now_us=10) == 1
    assert keep_from(log, 2, Retention(), now_us=1_000) == 3

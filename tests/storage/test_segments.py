"""Segments return the appended rows of every type, without copies."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.columns.arrow_schema import from_arrow, to_arrow
from slicemill.storage import segments
from slicemill.storage.filesystem import LOCAL, StorageFull
from slicemill.storage.segments import (
    UNVERIFIED,
    Extent,
    ExtentDamaged,
    ExtentFreed,
    SegmentError,
    SegmentReader,
    SegmentWriter,
    SegmentWriters,
    parse_segment,
    read_extent,
)
from slicemill.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    INTERVAL,
    MONTHS,
    NULL,
    PERIOD,
    TIMESTAMP,
    VARCHAR,
    Column,
    Kind,
    Schema,
    Type,
    decimal,
)
from storage.faulty_files import PARTS, FullFiles, MemoryFiles, SpyFiles
from storage.tables import rows

FOLDER = Path("/log")
INSTANTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda at: at.replace(tzinfo=UTC))
VALUES: dict[Type, st.SearchStrategy[object]] = {
    BOOLEAN: st.booleans(),
    INT: st.integers(-(2**31), 2**31 - 1),
    BIGINT: st.integers(-(2**63), 2**63 - 1),
    DOUBLE: st.floats(),
    decimal(12, 3): st.decimals(-(10**8), 10**8, places=3),
    decimal(38, 0): st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal),
    VARCHAR: st.text(),
    Type(Kind.VARCHAR, length=3): st.text(max_size=3),
    BINARY: st.binary(),
    TIMESTAMP: INSTANTS,
    DATE: st.dates(),
    INTERVAL: st.timedeltas(timedelta(days=-(10**6)), timedelta(days=10**6)),
    MONTHS: st.integers(-1200, 1200),
    PERIOD: st.fixed_dictionaries({"begin": INSTANTS, "end": INSTANTS}),
    NULL: st.none(),
}
ALL_TYPES = Schema(tuple(Column(f"c{i}", type_) for i, type_ in enumerate(VALUES)))
ROWS = st.lists(st.tuples(*(st.none() | values for values in VALUES.values())), max_size=5)


def same(left: object, right: object) -> bool:
    both_nan = isinstance(left, float) and isinstance(right, float) and math.isnan(left) and math.isnan(right)
    return both_nan or left == right


@given(ROWS, st.booleans())
@settings(max_examples=40)
def test_every_type_survives_a_round_trip_with_null_and_nan(
    rows: list[tuple[object, ...]], compress: bool
) -> None:
    files = MemoryFiles()
    schema = to_arrow(ALL_TYPES)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments, "_COMPRESSED_BYTES", 0)
        patched.setattr(segments, "_COMPRESSED_ROWS", 2)
        writer = SegmentWriter(FOLDER, "w", files=files)
        extents = [writer.append(pa.table(columns, schema=schema), compress=compress) for _ in range(2)]
    for extent in extents:
        back = read_extent(FOLDER, extent, files)
        assert from_arrow(back.schema) == ALL_TYPES
        assert extent.rows == back.num_rows == len(rows)
        found = list(zip(*(column.to_pylist() for column in back.columns), strict=True))
        assert all(
            same(*pair) for was, now in zip(rows, found, strict=True) for pair in zip(was, now, strict=True)
        )


@pytest.mark.parametrize("compress", [False, True])
def test_a_segment_is_a_standard_arrow_stream(tmp_path: Path, compress: bool) -> None:
    writer = SegmentWriter(tmp_path, "w")
    long = rows(*range(20_000), seq=3)
    for table in (rows(1, 2), long, rows()):
        writer.append(table, compress=compress)
    with pa.memory_map(str(tmp_path / "w-0.arrows")) as file:
        assert pa.ipc.open_stream(file).read_all().equals(pa.concat_tables([rows(1, 2), long]))


def test_a_new_segment_starts_when_the_schema_changes_or_the_segment_is_full() -> None:
    files = MemoryFiles()
    writer = SegmentWriter(FOLDER, "w", roll_bytes=2_000, files=files)
    tables = [rows(1), rows(2), rows(3).drop_columns("n"), rows(4), *(rows(*range(100)) for _ in range(3))]
    extents = [writer.append(table) for table in tables]
    assert [extent.segment for extent in extents] == [f"w-{n}.arrows" for n in (0, 0, 1, 2, 2, 3, 4)]
    assert all(
        read_extent(FOLDER, extent, files).equals(table)
        for extent, table in zip(extents, tables, strict=True)
    )


def test_two_writers_with_one_name_use_different_segments() -> None:
    files = MemoryFiles()
    one, other = (SegmentWriter(FOLDER, "w", files=files) for _ in range(2))
    assert [one.append(rows(1)).segment, other.append(rows(2)).segment] == ["w-0.arrows", "w-1.arrows"]


@pytest.mark.parametrize("released", [False, True])
def test_a_writer_whose_segment_was_deleted_starts_another_segment(tmp_path: Path, released: bool) -> None:
    writers = SegmentWriters("w")
    first = writers.append(tmp_path, rows(1))
    if released:
        writers.close()
    (tmp_path / first.segment).unlink()
    second = writers.append(tmp_path, rows(2))
    assert (first.segment, second.segment) == ("w-0.arrows", "w-1.arrows")
    assert read_extent(tmp_path, second).equals(rows(2))
    writers.forget(tmp_path)
    assert writers.append(tmp_path, rows(3)).segment == "w-2.arrows"
    writers.sync()
    writers.close()


def test_many_chunks_are_stored_as_one_batch() -> None:
    files = MemoryFiles()
    extent = SegmentWriter(FOLDER, "w", files=files).append(pa.concat_tables([rows(1), rows(2), rows(3)]))
    assert read_extent(FOLDER, extent, files).column("n").num_chunks == 1


def test_a_slice_of_a_table_stores_only_its_rows() -> None:
    files = MemoryFiles()
    writer = SegmentWriter(FOLDER, "w", files=files)
    whole = rows(*range(1_000))
    extent = writer.append(whole.slice(500, 2))
    assert extent.length < 1_000
    assert read_extent(FOLDER, extent, files).equals(whole.slice(500, 2))


def test_a_dictionary_column_is_rejected() -> None:
    table = pa.table({"text": pa.array(["a"]).dictionary_encode()})
    with pytest.raises(SegmentError, match="decode it"):
        SegmentWriter(FOLDER, "w", files=MemoryFiles()).append(table)


def test_reading_an_extent_copies_no_rows(tmp_path: Path) -> None:
    half = 100_000
    extent = SegmentWriter(tmp_path, "w").append(
        pa.concat_tables([rows(*range(half)), rows(*range(half), seq=half)])
    )
    before = pa.total_allocated_bytes()
    table = read_extent(tmp_path, extent)
    assert table.column("_seq").chunk(0).to_numpy(zero_copy_only=True)[-1] == 2 * half - 1
    assert pa.total_allocated_bytes() - before < 10_000


def test_rows_at_the_end_of_a_growing_segment_can_be_read_at_once(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "w")
    for n in range(1_000):
        assert read_extent(tmp_path, writer.append(rows(n, seq=n))).equals(rows(n, seq=n))


def test_repeated_reads_map_a_segment_once_and_release_deleted_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_MAPS_BETWEEN_SEARCHES", 1)
    reader = SegmentReader(LOCAL)
    writer = SegmentWriter(tmp_path, "w", roll_bytes=400_000)
    extents = [writer.append(rows(n, seq=n)) for n in range(1_500)]
    last = extents[-1].segment
    for extent in extents:
        reader.read(tmp_path, extent)
    assert {extent.segment for extent in extents} == {"w-0.arrows", "w-1.arrows"}
    table = reader.read(tmp_path, extents[0])
    assert pa.total_allocated_bytes() < 10_000_000
    (tmp_path / "w-0.arrows").unlink()
    assert table.equals(rows(0)), "what is mapped stays readable"
    for _ in range(300):
        fresh = writer.append(rows(7))
        reader.read(tmp_path, fresh)
    assert last == fresh.segment
    with pytest.raises(ExtentFreed, match="freed"):
        reader.read(tmp_path, extents[0])


def test_a_writer_whose_segment_was_moved_starts_another_segment(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "w")
    first = writer.append(rows(1))
    (tmp_path / "trash").mkdir()
    (tmp_path / first.segment).rename(tmp_path / "trash" / first.segment)
    second = writer.append(rows(2))
    assert second.segment != first.segment and read_extent(tmp_path, second).equals(rows(2))


def test_every_bit_flip_in_a_segment_is_detected_before_parsing(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "w")
    extents = [writer.append(rows(1, 2)), writer.append(rows(*range(20_000)), compress=True)]
    path = tmp_path / extents[0].segment
    whole = path.read_bytes()
    for extent in extents:
        for index in (*range(0, extents[0].offset, 5), extent.offset, extent.offset + extent.length - 1):
            path.write_bytes(whole[:index] + bytes([whole[index] ^ 1 << index % 8]) + whole[index + 1 :])
            with pytest.raises(ExtentDamaged, match="home repair"):
                SegmentReader(LOCAL).read(tmp_path, extent)
            with pytest.raises(ExtentDamaged, match="home repair"):
                SegmentReader(LOCAL).read_columns(tmp_path, [extent], ["n"])
    path.write_bytes(whole)
    for extent in extents:
        unverified = extent._replace(crc=UNVERIFIED)
        assert SegmentReader(LOCAL).read(tmp_path, extent).equals(read_extent(tmp_path, unverified))


def test_a_truncated_or_changed_segment_is_reported(tmp_path: Path) -> None:
    extent = SegmentWriter(tmp_path, "w").append(rows(*range(100)))
    path = tmp_path / extent.segment
    whole = path.read_bytes()
    path.write_bytes(whole[:-100])
    with pytest.raises(SegmentError, match="cannot be read at"):
        read_extent(tmp_path, extent)
    path.write_bytes(whole[: extent.offset] + bytes(extent.length))
    with pytest.raises(SegmentError, match="home check"):
        read_extent(tmp_path, extent)
    path.write_bytes(whole)
    with pytest.raises(SegmentError, match="100 rows instead of 99"):
        read_extent(tmp_path, extent._replace(rows=99))


@pytest.mark.parametrize("part", PARTS)
def test_a_full_disk_loses_no_rows_and_appends_continue_with_space(part: str) -> None:
    for room in range(8):
        memory = MemoryFiles()
        files = FullFiles(memory, room=room, part=part)
        writer = SegmentWriter(FOLDER, "w", files=files)
        kept: list[tuple[Extent, pa.Table]] = []
        for n in range(6):
            table = rows(n, seq=n)
            try:
                kept.append((writer.append(table), table))
            except StorageFull:
                files.room = None
        assert len(kept) >= 5
        assert all(read_extent(FOLDER, extent, memory).equals(table) for extent, table in kept)


def test_a_disk_that_stays_full_gets_no_empty_segments() -> None:
    files = FullFiles(MemoryFiles(), part="half")
    writer = SegmentWriter(FOLDER, "w", files=files)
    first = writer.append(rows(1))
    for schema_changes in (False, True):
        files.room = 1
        for n in range(20):
            with pytest.raises(StorageFull):
                for _ in range(3):
                    writer.append(rows(n).drop_columns("n") if schema_changes else rows(n))
            files.room = 1 if schema_changes else 0
    assert len(files.names(FOLDER)) <= 3
    files.room = None
    assert read_extent(FOLDER, writer.append(rows(5)), files).equals(rows(5))
    assert read_extent(FOLDER, first, files).equals(rows(1))


def test_sync_covers_changed_segments_before_their_folder_and_nothing_else() -> None:
    files = SpyFiles(MemoryFiles())
    writers = SegmentWriters("w", roll_bytes=500, files=files)
    writers.append(Path("/a"), rows(1, 2, 3, 4))
    writers.append(Path("/a"), rows(2))
    writers.append(Path("/b"), rows(1))
    files.seen.clear()
    writers.sync()
    assert files.seen == [
        ("sync", "w-0.arrows"),
        ("fdatasync", "w-1.arrows"),
        ("sync", "a"),
        ("fdatasync", "w-0.arrows"),
        ("sync", "b"),
    ]
    files.seen.clear()
    writers.sync()
    assert files.seen == []


def test_a_process_has_few_open_files_for_any_number_of_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_OPEN_FILES", 3)
    writers = SegmentWriters("w")
    before = len(list(Path("/proc/self/fd").iterdir()))
    extents = [
        (tmp_path / str(log), writers.append(tmp_path / str(log), rows(turn)), turn)
        for turn in range(3)
        for log in range(10)
    ]
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 3
    assert all(extent.segment == "w-0.arrows" for _, extent, _ in extents)
    assert all(read_extent(folder, extent).equals(rows(turn)) for folder, extent, turn in extents)
    writers.close()


def test_a_segment_name_has_the_writer_and_a_number() -> None:
    assert parse_segment("a-b-12.arrows") == ("a-b", 12)
    assert [parse_segment(name) for name in ("a.arrows", "a-1.arrow", "a-x.arrows", "lock")] == [None] * 4

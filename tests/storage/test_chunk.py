"""Chunks give back what was written, of every type, without copying it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.esl.types import (
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
from slicemill.storage.arrow_schema import (
    from_arrow,
    to_arrow,
)
from slicemill.storage.chunk import (
    ChunkError,
    check_chunks,
    merge_sorted,
    open_chunk,
    sorted_by,
    write_chunk,
)
from storage.faulty_files import MemoryFiles

FOLDER = Path("/")
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
def test_every_type_comes_back_with_null_and_nan(rows: list[tuple[object, ...]], compress: bool) -> None:
    files = MemoryFiles()
    files.make_folder(FOLDER / "chunks")
    schema = to_arrow(ALL_TYPES)
    columns = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("slicemill.storage.chunk._COMPRESSED_BYTES", 0)
        chunk = write_chunk(FOLDER, "chunks", pa.table(columns, schema=schema), files, compress=compress)
    back = open_chunk(FOLDER, chunk, files)
    assert from_arrow(back.schema) == ALL_TYPES
    assert chunk.rows == back.num_rows == len(rows)
    found = list(zip(*(column.to_pylist() for column in back.columns), strict=True))
    assert all(
        same(*pair) for was, now in zip(rows, found, strict=True) for pair in zip(was, now, strict=True)
    )


def timed(*ts: int, tag: str = "") -> pa.Table:
    return pa.table(
        {"_ts": pa.array(ts, pa.int64()), "tag": pa.array([f"{tag}{i}" for i in range(len(ts))], pa.string())}
    )


def test_a_chunk_knows_its_times(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    chunk = write_chunk(tmp_path, "c", timed(3, 3, 8))
    assert (chunk.rows, chunk.min_ts, chunk.max_ts) == (3, 3, 8)
    assert chunk.bytes == (tmp_path / chunk.path).stat().st_size
    empty = write_chunk(tmp_path, "c", timed())
    assert (empty.rows, empty.min_ts, empty.max_ts) == (0, None, None)
    assert open_chunk(tmp_path, empty).schema == timed().schema


def test_a_large_chunk_that_is_compressed_is_smaller_and_a_small_one_is_mapped(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    for table, smaller in ((timed(*range(20_000)), True), (timed(*range(20)), False)):
        plain, compressed = (write_chunk(tmp_path, "c", table, compress=how) for how in (False, True))
        assert (compressed.bytes < plain.bytes) == smaller
        assert compressed.bytes == (tmp_path / compressed.path).stat().st_size
        assert open_chunk(tmp_path, compressed) == table


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (timed(2, 1), "sorted"),
        (pa.table({"_ts": pa.array([1, None], pa.int64())}), "without NULL"),
        (pa.table({"_ts": pa.array([1], pa.int32())}), "int64"),
    ],
)
def test_a_table_out_of_order_or_without_times_is_refused(table: pa.Table, message: str) -> None:
    with pytest.raises(ChunkError, match=message):
        write_chunk(FOLDER, "c", table, MemoryFiles())


def test_reading_a_chunk_copies_nothing(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    rows = 1_000_000
    half = pa.table({"_ts": pa.array(range(rows // 2), pa.int64())})
    later = pa.table({"_ts": pa.array(range(rows // 2, rows), pa.int64())})
    chunk = write_chunk(tmp_path, "c", pa.concat_tables([half, later]))
    before = pa.total_allocated_bytes()
    table = open_chunk(tmp_path, chunk)
    assert table.column("_ts").num_chunks == 1
    assert table.column("_ts").chunk(0).to_numpy(zero_copy_only=True)[-1] == rows - 1
    assert pa.total_allocated_bytes() - before < 10_000


def test_a_mapped_chunk_stays_readable_after_its_file_is_removed(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    chunk = write_chunk(tmp_path, "c", timed(1, 2))
    table = open_chunk(tmp_path, chunk)
    (tmp_path / chunk.path).unlink()
    assert table == timed(1, 2)


def test_a_chunk_that_is_gone_or_cut_is_reported_before_it_is_committed(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()
    chunk = write_chunk(tmp_path, "c", timed(1, 2))
    check_chunks(tmp_path, [chunk])
    (tmp_path / chunk.path).write_bytes(b"ARROW")
    with pytest.raises(ChunkError, match=f"has 5 of {chunk.bytes} bytes"):
        check_chunks(tmp_path, [chunk])
    with pytest.raises(ChunkError, match="cannot be read"):
        open_chunk(tmp_path, chunk)
    (tmp_path / chunk.path).unlink()
    with pytest.raises(ChunkError, match="is gone"):
        check_chunks(tmp_path, [chunk])


@given(st.lists(st.lists(st.integers(0, 6), max_size=6).map(sorted), min_size=1, max_size=4))
def test_merging_sorts_by_time_and_keeps_the_order_of_equal_times(parts: list[list[int]]) -> None:
    tables = [timed(*part, tag=f"{number}.") for number, part in enumerate(parts)]
    expected = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["_ts"])
    assert merge_sorted(tables).to_pylist() == expected


@pytest.mark.parametrize("run_rows", [1, 300, 5_000])
@pytest.mark.parametrize("step", [0, 1, 7])
def test_rows_are_sorted_alike_whether_they_come_in_short_runs_or_long(run_rows: int, step: int) -> None:
    runs = [np.arange(run_rows, dtype=np.int64) * step + first for first in (9_000, 0, 40_000, 0, 100)]
    times = np.concatenate(runs)
    table = pa.table({"_ts": times, "place": np.arange(len(times))})
    assert sorted_by(table, times).equals(table.take(np.argsort(times, kind="stable")))

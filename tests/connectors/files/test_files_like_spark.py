"""File readers give the rows, bad rows and reasons of Spark's readers and Catalyst's checks."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from tests.connectors.spellings import (
    SCHEMA,
    TYPES,
    column_numbers,
    comparable,
    drawn,
    json_values,
    numbers,
    texts,
)

from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Stream, TimestampKind
from slicemill.connectors.registry import open_readers
from slicemill.connectors.spark.checks import RAW, REASON
from slicemill.connectors.spark.open import batch_frame
from slicemill.types import Column, Kind, Schema, Type

Row = tuple[object, ...]
Outcome = tuple[list[Row], list[tuple[str, str]]]

EVENT = Schema(
    (
        Column("item", Type(Kind.VARCHAR, length=5)),
        Column("price", t.DOUBLE),
        Column("count", t.INT),
        Column("ts", t.TIMESTAMP),
    )
)


def stream_of(schema: Schema, time: str | None, form: str, **options: object) -> Stream:
    source = SourceSpec(format=form, options=tuple((key, str(value)) for key, value in options.items()))
    kind = TimestampKind.LATENT if time is None else TimestampKind.EXTERNAL
    return Stream("s", schema.with_units(()), kind, time, 0, None, source, schema.units)


def plain(table: pa.Table, names: Sequence[str]) -> list[Row]:
    """Return timestamps as integers."""
    columns = []
    for name in names:
        column = table[name]
        if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
            column = column.cast(pa.int64())
        columns.append([comparable(value) for value in column.to_pylist()])
    return list(zip(*columns, strict=True))


def by_spark(spark: SparkSession, stream: Stream) -> Outcome:
    table = batch_frame(spark, stream).toArrow()
    rows = plain(table, stream.schema.names)
    raws, reasons = table[RAW].to_pylist(), table[REASON].to_pylist()
    good = [row for row, reason in zip(rows, reasons, strict=True) if reason is None]
    return good, [(raw, reason) for raw, reason in zip(raws, reasons, strict=True) if reason is not None]


def by_reader(stream: Stream, spool: Path, limit: int = 700) -> Outcome:
    readers = open_readers(stream, stream.schema.names, Path(), spool, lambda: None, lambda: 0)
    assert readers is not None
    rows: list[Row] = []
    errors: list[tuple[str, str]] = []
    offset, more = None, True
    while more:
        batch = readers["0"].read(offset, limit)
        offset, more = json.loads(json.dumps(batch.offset)), batch.more
        if batch.table is not None:
            rows += plain(batch.table, stream.schema.names)
        if batch.errors is not None:
            errors += [(error["raw"], error["reason"]) for error in batch.errors.to_pylist()]
    readers["0"].close()
    return rows, errors


def assert_same(spark: SparkSession, stream: Stream, spool: Path) -> None:
    expected, found = by_spark(spark, stream), by_reader(stream, spool)
    for want, got in zip(expected[1], found[1], strict=False):
        assert got == want
    assert found[1] == expected[1]
    for good, row in zip(expected[0], found[0], strict=False):
        assert row == good
    assert found[0] == expected[0]


def written_as_csv(rows: Sequence[Sequence[str]]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


@pytest.mark.slow_cpu
def test_csv_values_are_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        [value if column == number else "" for column in range(len(TYPES))]
        for number, value in drawn(st.tuples(column_numbers, texts), 1_500)
    ]
    (tmp_path / "rows.csv").write_text(written_as_csv(rows), newline="")
    assert_same(spark, stream_of(SCHEMA, None, "csv", path=tmp_path / "rows.csv"), tmp_path / "spool")


ODD_LINES = [
    b"",
    b"   ",
    b"\t",
    b"lamp,1.5,3,2026-01-31 12:00:00",
    b'"lamp" ,"1.5",3, 2026-01-31T12:00:00Z ',
    b'la"mp,1,2,3',
    b'"la"mp,1,2,3',
    b'"la""m",1,2,3',
    b'"begun',
    b'and ended",1,2,3',
    b"lamp,1,2",
    b"lamp,1,2,3,4",
    b"NULL,null,\\N,3",
    b",,,",
    b",,,5",
    b"lamp, 1 , 2 ,3",
    b"lamp,1e3,1e3,3",
    b"lamp,inf,2147483648,3",
    b"lamp,NaN,-2147483649,3",
    b"lamps!,1,2,3",
    "öäüßé,1,2,3".encode(),
    "日本語,1,2,３".encode(),
    b"v\xff,1,2,3",
    b"\xef\xbb\xbflamp,1,2,3",
    b"lamp,1,2,2026-02-30",
    b"lamp,1,2,2026-01-31T12:00:00+05:30",
    b"lamp,1,2,2026-01-31 12",
    b"lamp,0x1,0x1,3",
    b"lamp,1,2,3\r",
    b"lamp,1\r,2,3",
]


@pytest.mark.parametrize("header", [False, True])
def test_malformed_csv_lines_are_read_like_spark(spark: SparkSession, tmp_path: Path, header: bool) -> None:
    lines = [*ODD_LINES, *(text.encode() for text in drawn(st.text('",a1 \t', max_size=10), 400))]
    first = [b"ITEM,price, count ,ts"] if header else []
    data = b"\n".join([*first, *lines])
    (tmp_path / "rows.csv").write_bytes(b"\xef\xbb\xbf" + data)
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(data))
    for name in ("rows.csv", "rows.csv.gz"):
        stream = stream_of(EVENT, "ts", "csv", path=tmp_path / name, header=header)
        assert_same(spark, stream, tmp_path / "spool")


def test_csv_with_other_separators_and_quotes_is_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    lines = drawn(st.text("|'ab\" ", max_size=10), 400)
    (tmp_path / "rows.csv").write_text("\n".join(["a|b", *lines]))
    schema = Schema((Column("b", t.VARCHAR), Column("a", t.VARCHAR)))
    options = {"sep": "|", "quote": "'", "escape": "'", "nullValue": "a"}
    assert_same(
        spark, stream_of(schema, None, "csv", path=tmp_path / "rows.csv", **options), tmp_path / "spool"
    )


@pytest.mark.slow_cpu
def test_json_values_are_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = drawn(st.tuples(column_numbers, json_values, st.booleans()), 1_500)
    junk = ['{"c6":1}] [{}', '{"c6":1},{}', '{"c6":1}{}', '{"c6":NaN}', "{'c6':1}", "null", '{"c6":1,"c6":2}']
    near = drawn(st.text('{}[]",:a1.e-\\u0 \t', max_size=12), 300)
    lines = [json.dumps({("C" if other else "c") + str(n): value}) for n, value, other in rows]
    # Enough uniform lines that Arrow reads them.
    alike = [
        json.dumps({"c1": n, "c3": n / 8, "c6": f"text {n}", "c8": f"2026-01-31 12:00:{n % 60:02}"})
        for n in range(999)
    ]
    whole = [*junk, *alike, *near, *lines, *('{"c6":' + line + "}" for line in near), *alike]
    (tmp_path / "rows.json").write_text("\n".join(whole))
    assert_same(spark, stream_of(SCHEMA, None, "json", path=tmp_path / "rows.json"), tmp_path / "spool")


ARROW: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "int": (pa.int64(), numbers.filter(lambda n: -(2**63) <= n < 2**63)),
    "small": (pa.int16(), st.integers(-(2**15), 2**15 - 1)),
    "double": (pa.float64(), st.floats() | numbers.map(float)),
    "single": (pa.float32(), st.floats(width=32)),
    "decimal": (pa.decimal128(12, 4), st.decimals(-(10**7), 10**7, places=4)),
    "text": (pa.string(), texts),
    "time": (pa.timestamp("us", tz="UTC"), st.integers(-(10**14), 10**15)),
    "milli": (pa.timestamp("ms"), st.integers(-(10**11), 10**12)),
    "day": (pa.date32(), st.dates()),
    "flag": (pa.bool_(), st.booleans()),
}


@pytest.mark.slow_cpu
def test_parquet_values_of_every_type_are_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Each Arrow type under each declared type; a row has a value in one column."""
    parts, declared = [], []
    for form, (arrow, strategy) in ARROW.items():
        values = drawn(strategy, 50)
        for number, type_ in enumerate(TYPES):
            declared.append(Column(f"{form}{number}", type_))
            parts.append(pa.table({f"{form}{number}": pa.array(values, arrow)}))
    file = tmp_path / "rows.parquet"
    parquet.write_table(pa.concat_tables(parts, promote_options="default"), file, row_group_size=1_000)
    stream = stream_of(Schema(tuple(declared)), None, "parquet", path=file)
    expected, found = by_spark(spark, stream), by_reader(stream, tmp_path / "spool")
    assert found[0] == expected[0]
    assert [reason for _, reason in found[1]] == [reason for _, reason in expected[1]]


def test_a_bad_parquet_row_has_the_raw_text_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table(
        {
            "N": pa.array([1, 2**40, None], pa.int64()),
            "x": pa.array([0.5, None, 2.0]),
            "s": ["a", "ü", None],
            "ts": pa.array([1, 1_500_000, None], pa.timestamp("us", tz="UTC")),
            "day": pa.array([1, 2, 3], pa.date32()),
            "flag": [True, False, None],
        }
    )
    parquet.write_table(table, tmp_path / "rows.parquet")
    schema = Schema((Column("n", t.INT), Column("ts", t.TIMESTAMP)))
    stream = stream_of(schema, "ts", "parquet", path=tmp_path / "rows.parquet")
    expected, found = by_spark(spark, stream), by_reader(stream, tmp_path / "spool")
    assert found[0] == expected[0]
    assert [(json.loads(raw), reason) for raw, reason in found[1]] == [
        (json.loads(raw), reason) for raw, reason in expected[1]
    ]


def test_parquet_files_written_by_spark_are_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT CAST(id AS INT) AS count, id / 8 AS price, CONCAT('i', id) AS item, "
        "TIMESTAMP_MICROS(id * 1000) AS ts, CAST(id AS DECIMAL(10, 2)) AS d FROM RANGE(500)"
    ).coalesce(1)
    schema = Schema((*EVENT, Column("d", t.decimal(12, 1))))
    for kind in ("INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"):
        spark.conf.set("spark.sql.parquet.outputTimestampType", kind)
        try:
            frame.write.parquet(str(tmp_path / kind))
        finally:
            spark.conf.unset("spark.sql.parquet.outputTimestampType")
        assert_same(spark, stream_of(schema, "ts", "parquet", path=tmp_path / kind), tmp_path / "spool")


def test_dates_of_the_julian_calendar_are_read_like_spark(spark: SparkSession, tmp_path: Path) -> None:
    dates = ["0001-01-01", "0100-03-01", "1000-02-28", "1582-10-04", "1582-10-15", "1899-12-31", "2026-01-31"]
    frame = spark.sql(
        "SELECT CAST(d AS DATE) AS day, CAST(CONCAT(d, ' 12:34:56') AS TIMESTAMP) AS ts "
        f"FROM VALUES {', '.join(f'({day!r})' for day in dates)} AS v(d)"
    ).coalesce(1)
    settings = {
        "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
        "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    }
    schema = Schema((Column("day", t.DATE), Column("ts", t.TIMESTAMP)))
    for kind in ("INT96", "TIMESTAMP_MICROS"):
        changed = {**settings, "spark.sql.parquet.outputTimestampType": kind}
        for name, value in changed.items():
            spark.conf.set(name, value)
        try:
            frame.write.parquet(str(tmp_path / kind))
        finally:
            for name in changed:
                spark.conf.unset(name)
        assert_same(spark, stream_of(schema, "ts", "parquet", path=tmp_path / kind), tmp_path / "spool")

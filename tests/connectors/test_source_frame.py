"""Every kind of source as a Spark frame: declared columns, and bad rows with their text and a reason."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Stream, Table, TimestampKind
from slicemill.connectors.finite import read_rows
from slicemill.connectors.origin import origin_of
from slicemill.connectors.spark.checks import PLACE, RAW, REASON
from slicemill.connectors.spark.open import batch_frame, streaming_frame, table_frame
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.records import BadRow
from slicemill.types import Column, Kind, Schema, TimestampUnit, Type

MICROS = Type(Kind.TIMESTAMP, unit=TimestampUnit.MICROS)
BID = Schema((Column("item", Type(Kind.VARCHAR, length=5)), Column("price", t.DOUBLE), Column("ts", MICROS)))


def stream_of(source: SourceSpec, schema: Schema = BID, time: str | None = "ts") -> Stream:
    kind = TimestampKind.LATENT if time is None else TimestampKind.EXTERNAL
    return Stream("bid", schema.with_units(()), kind, time, 0, None, source, schema.units)


def using(form: str, **options: object) -> SourceSpec:
    return SourceSpec(format=form, options=tuple((key, str(value)) for key, value in options.items()))


def streamed(frame: DataFrame, folder: Path) -> list[Row]:
    """Run a stream to its current end, and return the rows."""
    rows: list[Row] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: rows.extend(batch.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def reasons(rows: list[Row]) -> list[tuple[str | None, str | None]]:
    return [(row["_raw"], row["_reason"]) for row in rows]


def test_a_stream_of_csv_files_stores_bad_rows_with_a_reason(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_bytes(
        b"Price,ITEM,ts\n1.5,lamp,2026-01-31 12:00:00\n\nabc,lamp,2026-01-31\n2,chairs,5\n3,vase,\n"
        b"4,vase\n5,v\xff,6\n,,7000000\n"
    )
    stream = stream_of(using("csv", path=folder, header="true"))
    rows = streamed(streaming_frame(spark, stream), tmp_path)
    good = [row for row in rows if row["_reason"] is None]
    assert [row[:3] for row in good] == [
        ("lamp", 1.5, datetime(2026, 1, 31, 12)),
        (None, None, datetime(1970, 1, 1, 0, 0, 7)),
    ]
    assert reasons([row for row in rows if row["_reason"] is not None]) == [
        ("abc,lamp,2026-01-31", "column price: 'abc' is no DOUBLE"),
        ("2,chairs,5", "column item: 'chairs' is no VARCHAR(5)"),
        ("3,vase,", "the timestamp ts is NULL"),
        ("4,vase", "this row does not have 3 fields"),
        ("5,v\ufffd,6", "this is no UTF-8 text"),
    ]
    bad = [row for row in read_rows(stream.source, stream.encoded_schema) if isinstance(row, BadRow)]
    assert [(row.raw, row.reason) for row in bad] == [r for r in reasons(rows) if r[1] and "NULL" not in r[1]]


@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16"])
def test_each_csv_file_has_its_own_header_through_spark(
    spark: SparkSession, tmp_path: Path, encoding: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    texts = {
        "1.csv": "item,price,ts\nlamp,1.5,1000000\n",
        "2.csv": "Ts,Item,Price\n2000000,vase,2.5\n",
        "3.csv": "ts,colour,item\n3000000,red,rug\n",
        "4.csv": "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding=encoding)
    stream = stream_of(using("csv", path=folder, header="true", encoding=encoding))
    for rows in (streamed(streaming_frame(spark, stream), tmp_path), batch_frame(spark, stream).collect()):
        good = {row["item"]: row["price"] for row in rows if row["_reason"] is None}
        assert good == {"lamp": 1.5, "vase": 2.5, "rug": None}
        assert [(row["_raw"], row["_reason"]) for row in rows if row["_reason"] is not None] == [
            (
                "ts,colour,item",
                "3.csv has no column price: it is NULL in its rows; colour is not declared and left out",
            )
        ]


def test_parquet_files_through_spark_can_differ_in_the_width_of_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = Schema((Column("i", t.INT), Column("d", t.DOUBLE)))
    widths = [(pa.int64(), pa.float32()), (pa.int32(), pa.float64()), (pa.int8(), pa.float32())]
    for number, (whole, fraction) in enumerate(widths):
        values = [number, 2**40] if whole == pa.int64() else [number]
        table = pa.table({"i": pa.array(values, whole), "d": pa.array([0.5] * len(values), fraction)})
        parquet.write_table(table, tmp_path / f"{number}.parquet")
    stream = stream_of(using("parquet", path=tmp_path, recursiveFileLookup="true"), schema, None)
    rows = batch_frame(spark, stream).collect()
    assert sorted((row["i"], row["d"]) for row in rows if row["_reason"] is None) == [
        (0, 0.5),
        (1, 0.5),
        (2, 0.5),
    ]
    assert [row["_reason"] for row in rows if row["_reason"]] == ["column i: '1099511627776' is no INT"]


def test_a_single_json_file_can_be_streamed(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "bids.jsonl"
    good = {"item": "lamp", "price": 2, "ts": "2026-01-31T12:00:00+01:00"}
    file.write_text(f'{json.dumps(good)}\n{{"item": 7}}\n{{"item":"a"}} junk\n')
    (tmp_path / "other.jsonl").write_text("not read\n")
    rows = streamed(streaming_frame(spark, stream_of(SourceSpec(url=str(file)))), tmp_path)
    assert rows[0][:3] == ("lamp", 2.0, datetime(2026, 1, 31, 11))
    assert reasons(rows)[1:] == [
        ('{"item": 7}', "the timestamp ts is NULL"),
        ('{"item":"a"} junk', "this is no JSON object"),
    ]


TYPED = Schema(
    (
        Column("i", t.INT),
        Column("d", t.decimal(4, 2)),
        Column("s", Type(Kind.VARCHAR, length=3)),
        Column("ts", t.TIMESTAMP),
        Column("day", t.DATE),
    )
)


def typed_table() -> pa.Table:
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000)
    return pa.table(
        {
            "I": pa.array([1, 2**40, None, 4], pa.int64()),
            "d": pa.array(
                [Decimal("1.005"), None, Decimal("99.995"), Decimal("-1.000")], pa.decimal128(9, 3)
            ),
            "s": ["abc", "x", "y", "long"],
            "ts": pa.array([moment] * 4, pa.timestamp("us")),
            "day": [date(2026, 1, 31)] * 4,
        }
    )


def test_parquet_files_are_checked_against_the_declaration(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    parquet.write_table(typed_table(), folder / "part.parquet")
    source = using("parquet", path=folder)
    rows = streamed(streaming_frame(spark, stream_of(source, TYPED)), tmp_path)
    moment = datetime(2026, 1, 31, 12, 0, 0, 250_000)
    assert rows[0][:5] == (1, Decimal("1.01"), "abc", moment, date(2026, 1, 31))
    assert [row["_reason"] for row in rows] == [
        None,
        "column i: '1099511627776' is no INT",
        "column d: '99.995' is no DECIMAL(4, 2)",
        "column s: 'long' is no VARCHAR(3)",
    ]
    assert json.loads(rows[1]["_raw"])["I"] == 2**40
    expected = [r.reason if isinstance(r, BadRow) else None for r in read_rows(source, TYPED)]
    assert [row["_reason"] for row in rows] == expected


def test_the_session_time_zone_does_not_change_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    parquet.write_table(typed_table().slice(0, 1), tmp_path / "part.parquet")
    (tmp_path / "part.csv").write_text("2026-01-31T12:00\n2026-07-31 12:00:00\n1769860800000000\n")
    instants = Schema((Column("ts", MICROS),))
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        texts = batch_frame(spark, stream_of(using("csv", path=tmp_path / "part.csv"), instants)).toArrow()
        typed = batch_frame(
            spark, stream_of(using("parquet", path=tmp_path / "part.parquet"), TYPED)
        ).toArrow()
    finally:
        assert zone is not None
        spark.conf.set("spark.sql.session.timeZone", zone)
    noon_us = 1_769_860_800_000_000
    assert texts["ts"].cast(pa.int64()).to_pylist() == [noon_us, 1_785_499_200_000_000, noon_us]
    assert typed["ts"].cast(pa.int64()).to_pylist() == [noon_us + 250_000]


def test_an_empty_parquet_folder_is_a_stream_with_the_declared_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    frame = streaming_frame(spark, stream_of(using("parquet", path=folder), TYPED))
    assert [name for name, _ in frame.dtypes] == ["i", "d", "s", "ts", "day", RAW, REASON, *PLACE]
    parquet.write_table(
        pa.table({"i": pa.array([1], pa.int32()), "ts": pa.array([5], pa.timestamp("us", "UTC"))}),
        folder / "part.parquet",
    )
    rows = streamed(frame, tmp_path)
    assert [(row["i"], row["d"], row["_reason"]) for row in rows] == [(1, None, None)]


def test_nexmark_through_spark_gives_the_rows_of_the_reference_engine(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = Schema(
        (
            Column("auction", t.BIGINT),
            Column("channel", Type(Kind.VARCHAR, length=5)),
            Column("ts", t.TIMESTAMP),
        )
    )
    source = SourceSpec(url="nexmark://bid?events=500&seed=3&speed=as-fast-as-possible")
    frame = streaming_frame(spark, stream_of(source, schema))
    expected = [
        (None, None, None, row.reason) if isinstance(row, BadRow) else (*row, None)
        for row in read_rows(source, schema)
    ]
    epoch = datetime(1970, 1, 1)
    found = [
        (row["auction"], row["channel"], (row["ts"] - epoch) // timedelta(microseconds=1), None)
        if row["_reason"] is None
        else (None, None, None, row["_reason"])
        for row in streamed(frame, tmp_path)
    ]
    assert found == expected


def test_an_undeclared_column_of_a_rate_source_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    source = SourceSpec(url="rate://?rowsPerSecond=5")
    schema = Schema((Column("value", t.INT), Column("timestamp", t.TIMESTAMP)))
    frame = streaming_frame(spark, stream_of(source, schema, "timestamp"))
    assert frame.isStreaming and dict(frame.dtypes)["value"] == "int"
    with pytest.raises(SlicemillError, match="has no column item, price, ts; it has timestamp, value"):
        streaming_frame(spark, stream_of(source))


def test_any_other_spark_format_can_contain_lines(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text('{"item":"a","ts":1}\nb,2,3\n')
    source = using("text", path=tmp_path / "x.log", lines="either")
    rows = batch_frame(spark, stream_of(source)).collect()
    assert [(row["item"], row["price"], row["_reason"]) for row in rows] == [
        ("a", None, None),
        ("b", 2.0, None),
    ]


def test_a_table_has_only_its_good_rows_and_declared_columns(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "category.csv").write_text("id,name\n1,lamps\nx,chairs\n3,\n")
    schema = Schema((Column("name", t.VARCHAR), Column("id", t.INT)))
    table = Table("category", schema, using("csv", path="category.csv", header="true"))
    frame = table_frame(spark, table, tmp_path)
    assert [tuple(row) for row in frame.collect()] == [("lamps", 1), (None, 3)]
    empty = table_frame(spark, Table("empty", schema, SourceSpec()))
    assert empty.columns == ["name", "id"] and empty.count() == 0


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (SourceSpec(url="kafka://localhost:9092/bids"), "spark-sql-kafka-0-10_2.13:4.3"),
        (using("nosuch"), "Spark knows no format nosuch"),
        (using("csv"), r"USING csv needs OPTIONS \(path"),
        (using("csv", path="/no/such/folder"), "there is no file or folder /no/such/folder"),
        (SourceSpec(url="/no/such/folder"), "there is no file or folder /no/such/folder"),
        (SourceSpec(), "bid has no SOURCE"),
        (SourceSpec(url="tcp://localhost:4445"), "read by slicemill itself, not through Spark"),
        (SourceSpec(url="nexmark://bids"), "NEXMark has no stream 'bids'"),
    ],
)
def test_a_source_that_cannot_be_opened_is_reported_with_a_remedy(
    spark: SparkSession, tmp_path: Path, source: SourceSpec, message: str
) -> None:
    with pytest.raises(SlicemillError, match=message):
        streaming_frame(spark, stream_of(source))


@pytest.mark.parametrize("url", ["tcp://localhost:4445", "rate://"])
def test_an_endless_source_cannot_be_a_table(spark: SparkSession, url: str) -> None:
    with pytest.raises(SlicemillError, match="has no end: it can be read as a stream only"):
        batch_frame(spark, stream_of(SourceSpec(url=url)))


def test_a_port_number_of_the_theses_means_a_local_socket() -> None:
    origin = origin_of(SourceSpec(url="port4445"), "bid")
    assert (origin.format, origin.options) == ("tcp", {"host": "localhost", "port": "4445"})


def test_columns_of_bad_rows_cannot_be_declared(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema((Column("_Raw", t.VARCHAR),))
    with pytest.raises(SlicemillError, match="cannot have a column _raw"):
        streaming_frame(spark, stream_of(using("csv", path=tmp_path), schema, None))


def test_spark_options_can_refer_to_environment_variables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a#b").write_text("lamp|vase")
    schema = Schema((Column("value", t.VARCHAR),))
    source = using("text", path=f"file:{tmp_path}/a%23b", lineSep="${SLICEMILL_SECRET_SEPARATOR}")
    with pytest.raises(SlicemillError, match="SLICEMILL_SECRET_SEPARATOR is not set"):
        table_frame(spark, Table("words", schema, source))
    monkeypatch.setenv("SLICEMILL_SECRET_SEPARATOR", "|")
    rows = table_frame(spark, Table("words", schema, source)).collect()
    assert [row.value for row in rows] == ["lamp", "vase"]

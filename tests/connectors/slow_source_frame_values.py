"""Spark and the reference engine accept the same values, reject the same values, and give the same reason.

`make test-slow` runs this module. `make test` compares the product's readers with Spark
(`files/test_files_like_spark.py`).
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
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

from slicemill.catalog.catalog import SourceSpec, Table
from slicemill.connectors.finite import read_rows
from slicemill.connectors.spark.checks import RAW, REASON
from slicemill.connectors.spark.open import batch_frame
from slicemill.ingest.formats.records import BadRow
from slicemill.types import Column, Schema


def assert_same(
    spark: SparkSession, source: SourceSpec, schema: Schema = SCHEMA, with_raw: bool = True
) -> None:
    frame = batch_frame(spark, Table("t", schema.with_units(()), source, schema.units))
    arrow = frame.toArrow()
    found = list(zip(*(plain(arrow[name]) for name in schema.names), strict=True))
    raws, reasons = arrow[RAW].to_pylist(), arrow[REASON].to_pylist()
    expected = list(read_rows(source, schema))
    assert len(expected) == len(found)
    for want, row, raw, reason in zip(expected, found, raws, reasons, strict=True):
        if isinstance(want, BadRow):
            assert reason == want.reason
            # Only line formats preserve the raw text exactly.
            assert raw == want.raw or not with_raw
        else:
            assert (reason, raw, [*map(comparable, row)]) == (None, None, [*map(comparable, want)])


def plain(column: pa.ChunkedArray) -> list[object]:
    """Return timestamps as integers."""
    whole = {pa.date32(): pa.int32(), pa.duration("us"): pa.int64()}
    if pa.types.is_timestamp(column.type):
        whole[column.type] = pa.int64()
    values_: list[object] = column.cast(whole.get(column.type, column.type)).to_pylist()
    return values_


def test_json_values_are_accepted_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    rows = drawn(st.tuples(column_numbers, json_values), 1_500)
    lines = [json.dumps({name_in_case(number, n): value}) for n, (number, value) in enumerate(rows)]
    file = tmp_path / "rows.json"
    file.write_text("\n".join(lines))
    assert_same(spark, SourceSpec(url=str(file)))


def name_in_case(number: int, row: int) -> str:
    """Return a column name, sometimes C7 for c7, because names are not case-sensitive."""
    return f"C{number}" if row % 5 == 0 else f"c{number}"


def test_csv_values_are_accepted_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    for number, value in drawn(st.tuples(column_numbers, texts), 1_500):
        writer.writerow([value if column == number else "" for column in range(len(TYPES))])
    file = tmp_path / "rows.csv"
    file.write_text(lines.getvalue(), newline="")
    assert_same(spark, SourceSpec(format="csv", options=(("path", str(file)),)))


def test_malformed_json_objects_are_rejected_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    junk = ['{"c6":1}] [{}', '{"c6":1},{}', '{"c6":1}{}', '{"c6":NaN}', "{'c6':1}", "null", '{"c6":1,"c6":2}']
    lines = drawn(st.text('{}[]",:a1.e-\\u0 \t', max_size=12), 400)
    near = ['{"c6":' + line + "}" for line in lines]
    file = tmp_path / "rows.json"
    file.write_text("\n".join([*junk, *near, *lines]))
    assert_same(spark, SourceSpec(url=str(file)))


ARROW = {
    "int": (pa.int64(), numbers.filter(lambda n: -(2**63) <= n < 2**63)),
    "double": (pa.float64(), st.floats() | numbers.map(float)),
    "decimal": (pa.decimal128(12, 4), st.decimals(-(10**7), 10**7, places=4)),
    "text": (pa.string(), texts),
    "time": (pa.timestamp("us", tz="UTC"), st.integers(-(10**14), 10**15)),
    "day": (pa.date32(), st.dates()),
    "flag": (pa.bool_(), st.booleans()),
}


def test_parquet_values_of_every_type_are_accepted_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Each Arrow type under each declared type; a row has a value in one column."""
    parts = []
    declared = []
    for form, (arrow, strategy) in ARROW.items():
        values_ = drawn(strategy, 60)
        for number, type_ in enumerate(TYPES):
            declared.append(Column(f"{form}{number}", type_))
            parts.append(pa.table({f"{form}{number}": pa.array(values_, arrow)}))
    file = tmp_path / "rows.parquet"
    parquet.write_table(pa.concat_tables(parts, promote_options="default"), file)
    assert_same(spark, SourceSpec(url=str(file)), Schema(tuple(declared)), with_raw=False)

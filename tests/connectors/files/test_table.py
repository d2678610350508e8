"""Static tables read without Spark: their good rows, in their declared columns."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet

from slicemill import types as t
from slicemill.catalog.catalog import SourceSpec, Table
from slicemill.connectors.files.reader import read_table
from slicemill.types import Column, Schema

CATEGORY = Schema((Column("name", t.VARCHAR), Column("id", t.INT)))


def using(form: str, **options: str) -> Table:
    return Table("category", CATEGORY, SourceSpec(format=form, options=tuple(options.items())))


def rows_of(table: pa.Table | None) -> list[tuple[object, ...]]:
    assert table is not None and table.column_names == ["name", "id"]
    return [tuple(row.values()) for row in table.to_pylist()]


def test_bad_rows_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "category.csv").write_text("id,name\n1,lamps\nx,chairs\n3,\n")
    table = read_table(using("csv", path="category.csv", header="true"), tmp_path)
    assert rows_of(table) == [("lamps", 1), (None, 3)]


def test_files_of_a_folder_are_read_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"id": 2}\n')
    (tmp_path / "a.json").write_text('{"id": 1, "name": "lamps"}\n')
    assert rows_of(read_table(using("json", path="."), tmp_path)) == [("lamps", 1), (None, 2)]


def test_a_parquet_table_has_its_good_rows(tmp_path: Path) -> None:
    parquet.write_table(pa.table({"id": [1, 2**40], "name": ["a", "b"]}), tmp_path / "x.parquet")
    assert rows_of(read_table(using("parquet", path="x.parquet"), tmp_path)) == [("a", 1)]


def test_a_table_without_a_source_is_empty(tmp_path: Path) -> None:
    assert rows_of(read_table(Table("empty", CATEGORY, SourceSpec()), tmp_path)) == []


def test_a_table_that_only_spark_can_read_has_no_reader(tmp_path: Path) -> None:
    assert read_table(using("orc", path="."), tmp_path) is None
    assert read_table(using("csv", path=".", encoding="UTF-16"), tmp_path) is None

"""Parquet files that tasks read themselves: the same rows as Catalyst gives, whatever is in a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from slicemill.connectors.spark.direct import read_as_declared
from slicemill.engine.mill import Mill
from slicemill.esl import bind
from slicemill.ingest.needs import Need
from slicemill.ingest.packing import Packer
from slicemill.storage.arrow_schema import to_arrow

COLUMNS = "item int, price bigint, name varchar, ts timestamp"
INSTANT = pa.timestamp("us", tz="UTC")
TYPES: dict[str, pa.DataType] = {"item": pa.int32(), "price": pa.int64(), "name": pa.string(), "ts": INSTANT}
DECLARED = to_arrow(bind(f"CREATE STREAM bid ({COLUMNS}) ORDER BY ts").catalog.declared_stream("bid").schema)

Row = tuple[int | None, int | None, str | None, int | None]


def table(*rows: Row, types: Mapping[str, pa.DataType] = TYPES) -> pa.Table:
    columns = zip(*rows, strict=True) if rows else [[]] * len(TYPES)
    return pa.table(
        {n: pa.array(list(values), TYPES[n]).cast(types[n]) for n, values in zip(TYPES, columns, strict=True)}
    )


GOOD = table((1, 10, "a", 5), (None, None, None, 3))

ODD: dict[str, Any] = {
    "a row without a timestamp": table((1, 10, "a", None)),
    "another type": table((1, 10, "a", 5), types={**TYPES, "price": pa.int32()}),
    "another unit of time": table((1, 10, "a", 5_000), types={**TYPES, "ts": pa.timestamp("ms", tz="UTC")}),
    "no time zone": table((1, 10, "a", 5), types={**TYPES, "ts": pa.timestamp("us")}),
    "a column less": GOOD.drop_columns(["name"]),
    "a name in capitals": GOOD.rename_columns(["ITEM", "price", "name", "ts"]),
    "a name twice": GOOD.append_column("PRICE", GOOD.column("price")),
    "an old calendar": GOOD.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
    "an old writer": GOOD.replace_schema_metadata({"org.apache.spark.version": "2.4.8"}),
}


def read(path: Path) -> pa.Table | None:
    return read_as_declared(f"file:{path}", DECLARED, ["price", "ts"], "ts")


def test_a_file_that_is_as_declared_is_read_in_the_columns_asked_for(tmp_path: Path) -> None:
    pq.write_table(GOOD.append_column("more", GOOD.column("price")), tmp_path / "x.parquet")
    found = read(tmp_path / "x.parquet")
    assert found is not None and found.equals(GOOD.select(["price", "ts"]))


@pytest.mark.parametrize("what", ODD)
def test_a_file_that_differs_is_left_to_catalyst(what: str, tmp_path: Path) -> None:
    pq.write_table(ODD[what], tmp_path / "x.parquet")
    assert read(tmp_path / "x.parquet") is None


def test_files_that_cannot_be_read_are_left_to_catalyst(tmp_path: Path) -> None:
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1 no more of it")
    (tmp_path / "day=7").mkdir()
    pq.write_table(GOOD, tmp_path / "day=7" / "x.parquet")
    for name in ("damaged.parquet", "gone.parquet", "day=7/x.parquet"):
        assert read(tmp_path / name) is None
    assert read_as_declared("hdfs://there/x.parquet", DECLARED, ["price"], None) is None


@settings(max_examples=30)
@given(
    files=st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 20)), max_size=8), max_size=3),
    least=st.integers(-1, 10),
)
def test_a_task_stores_the_rows_of_its_files_that_are_wanted_in_order(
    files: list[list[tuple[int, int]]], least: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("direct")
    (folder / "chunks").mkdir()
    paths = []
    for number, rows in enumerate(files):
        paths.append(f"file:{folder}/{number}.parquet")
        pq.write_table(table(*((None, p, "x", ts) for p, ts in rows)), folder / f"{number}.parquet")
    catalog = bind(f"CREATE STREAM bid ({COLUMNS}) ORDER BY ts; SELECT price FROM bid WHERE price >= {least}")
    select = catalog.catalog.queries["query_1"].query
    need = Need(select.where, frozenset({"price"}))  # type: ignore[union-attr]
    schema = catalog.catalog.declared_stream("bid").schema
    packer = Packer("bid", folder, folder, schema, "ts", need)
    lines = [
        row for b in packer.from_files(iter([pa.record_batch({"path": paths})])) for row in b.to_pylist()
    ]
    # The oracle: a stable sort of what passes, and the greatest of all timestamps.
    rows = [row for file in files for row in file]
    wanted = sorted((row for row in rows if row[0] >= least), key=lambda row: row[1])
    stored = [line for line in lines if line["kind"] == "good"]
    found = [row for line in stored for row in pa.ipc.open_file(folder / line["path"]).read_all().to_pylist()]
    assert found == [{"_ts": ts, "price": price} for price, ts in wanted]
    passed = [line["max_ts"] for line in lines if line["kind"] == "passed"]
    assert passed == ([max(ts for _, ts in rows)] if rows else [])


SCRIPT = """
CREATE QUERY dear AS SELECT item, price FROM {stream} WHERE price > 10;
CREATE QUERY cheap AS SELECT name, ts FROM {stream} WHERE price < 5;
CREATE QUERY bad AS SELECT raw, reason FROM {stream}_errors;
"""


def test_a_mill_gets_the_rows_that_catalyst_would_give_it(spark: SparkSession, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    second = 1_000_000
    arrivals = [
        table((1, 20, "a", 3 * second), (2, 1, "b", 2 * second)),
        table((3, 30, "c", 4 * second), (4, 7, "passed by", 9 * second)),
        table((5, 2, "d", None), (6, 40, "e", 10 * second)),
        # Late, though no query wanted the row that makes it so.
        table((7, 50, "late", 5 * second), (8, 60, "f", 11 * second)),
        table((9, 3, "g", 12 * second), types={**TYPES, "ts": pa.timestamp("ms", tz="UTC")}),
        table((10, 70, "h", 13 * second)).drop_columns(["name"]),
    ]
    for number, rows in enumerate(arrivals):
        path = files / f"no [{number}] of 6.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_000 + number, 1_000 + number))  # Spark takes files by age
    with Mill(spark, tmp_path / "home", folder=tmp_path) as mill:
        source = "USING parquet OPTIONS (path 'files', maxFilesPerTrigger 1)"
        mill.execute(f"CREATE STREAM bid ({COLUMNS}) ORDER BY ts {source}; {SCRIPT.format(stream='bid')}")
        mill.drain()
        direct = {name: [t.row for t in query.rows()] for name, query in mill.queries.items()}
    frame = spark.readStream.schema("item int, price bigint, name string, ts timestamp")
    frame = frame.option("maxFilesPerTrigger", 1)
    with Mill(spark, tmp_path / "other", folder=tmp_path) as mill:
        mill.stream("bid", frame.parquet(str(files)), time="ts")
        mill.execute(SCRIPT.format(stream="bid"))
        mill.drain()
        by_catalyst = {name: [t.row for t in query.rows()] for name, query in mill.queries.items()}
    assert direct == by_catalyst
    assert direct["dear"] == [(1, 20), (3, 30), (6, 40), (8, 60), (10, 70)]
    assert direct["cheap"] == [("b", 2 * second), ("g", 12 * second)]
    assert [reason for _, reason in direct["bad"]] == ["the timestamp ts is NULL"]

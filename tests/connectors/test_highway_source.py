"""The synthetic highway as a Spark data source, and the example that reads it, on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slicemill.connectors.generators.highway import HighwaySource, HighwayStreamReader, highway_options
from slicemill.engine.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.esl import bind
from slicemill.execution.runner import run_script
from slicemill.sources.highway import Highway

ROOT = Path(__file__).parents[2]
NAMES = ("segment", "at", "speed", "jam")


def expected(road: Highway) -> list[tuple[object, ...]]:
    assert road.slots is not None
    columns = road.rows(0, road.slots)
    return sorted(zip(*(columns[name].tolist() for name in NAMES), strict=True))


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    columns = [table[name].cast(pa.int64()) if name == "at" else table[name] for name in NAMES]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def test_a_batch_read_gives_the_rows_of_the_generator(spark: SparkSession) -> None:
    spark.dataSource.register(HighwaySource)
    frame = spark.read.format("highway").options(stream="road", segments=2, days=2, seed=7).load()
    assert rows_of(frame.toArrow()) == expected(Highway(segments=2, days=2, seed=7))


def test_partitions_change_no_row() -> None:
    reader = HighwayStreamReader(highway_options({"stream": "road", "days": "4", "partitions": "3"}))
    road = Highway(days=4)
    parts = reader.partitions({"event": 0, "since_us": 0}, {"event": road.slots or 0, "since_us": 0})
    assert len(parts) == 3
    table = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
    assert rows_of(table) == expected(road)


def test_options_are_checked() -> None:
    with pytest.raises(SlicemillError, match="highway:// has no option lane"):
        highway_options({"stream": "road", "lane": "1"})


def test_the_jams_are_those_of_the_reference_engine(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "traffic.esl").read_text(encoding="utf-8")
    text = text.replace("days=1&", "days=1&speed=as-fast-as-possible&").replace("days=21", "days=3")
    with Mill(spark, tmp_path, folder=ROOT, buckets=2) as mill:
        mill.execute(text)
        mill.drain()
        for query in run_script(bind(text).catalog, ROOT).queries:
            got = mill.queries[query.name]
            assert got.error is None
            assert sorted(got.rows(), key=repr) == sorted(query.rows, key=repr), query.name
            assert query.rows, query.name

"""RFID readings as a Spark data source, and the example that reads them, on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from slicemill.connectors.generators.rfid import RfidSource, RfidStreamReader, rfid_options
from slicemill.engine.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.esl import bind
from slicemill.execution.runner import run_script
from slicemill.sources.rfid import Tags

ROOT = Path(__file__).parents[2]


def expected(tags: Tags) -> list[tuple[int, ...]]:
    columns = tags.all_readings()
    return sorted(zip(*(columns[name].tolist() for name in ("reader", "tag", "at")), strict=True))


def rows_of(table: pa.Table) -> list[tuple[int, ...]]:
    columns = [table["reader"], table["tag"], table["at"].cast(pa.int64())]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


def test_a_batch_read_gives_the_readings_of_the_generator(spark: SparkSession) -> None:
    spark.dataSource.register(RfidSource)
    frame = spark.read.format("rfid").options(stream="reading", tags=20, seconds=15, seed=7).load()
    assert rows_of(frame.toArrow()) == expected(Tags(per_second=20, seconds=15, seed=7))


def test_partitions_and_batches_do_not_change_a_reading() -> None:
    given = {"stream": "reading", "tags": "20", "seconds": "40", "partitions": "3"}
    reader = RfidStreamReader(rfid_options(given))
    tags = Tags(per_second=20, seconds=40)
    parts = reader.partitions({"event": 0, "since_us": 0}, {"event": tags.slots or 0, "since_us": 0})
    assert len(parts) == 3
    table = pa.Table.from_batches([batch for part in parts for batch in reader.read(part)])
    assert rows_of(table) == expected(tags)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("stream", "door", "rfid:// has no stream 'door'"),
        ("tag", "5", "rfid:// has no option tag"),
        ("partitions", "0", "RFID's option partitions is at least 1, not 0"),
    ],
)
def test_options_are_checked(option: str, value: str, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        rfid_options({"stream": "reading", option: value})


def test_the_warehouse_gives_the_rows_of_the_reference_engine(spark: SparkSession, tmp_path: Path) -> None:
    text = (ROOT / "examples" / "rfid.esl").read_text(encoding="utf-8")
    text = text.replace("seconds=20", "seconds=4&speed=as-fast-as-possible")
    with Mill(spark, tmp_path, folder=ROOT, buckets=2) as mill:
        mill.execute(text)
        mill.drain()
        for query in run_script(bind(text).catalog, ROOT).queries:
            got = mill.queries[query.name]
            assert got.error is None
            assert sorted(got.rows(), key=repr) == sorted(query.rows, key=repr), query.name
            assert query.rows, query.name

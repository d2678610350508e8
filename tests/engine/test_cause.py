"""What people are told of a failure in Spark: its cause, and not the way it took through two languages."""

from __future__ import annotations

import io
import logging
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from slicemill.errors import SlicemillError
from slicemill.runtime.spark_session import cause
from slicemill.testing import inline_pool, open_mill


# Functions for tasks are made inside others: so they travel whole, and workers need not know this module.
def raising_in_a_task(numbers: DataFrame) -> DataFrame:
    def raises(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise ValueError("bad thing\n  in two lines")
        yield

    return numbers.mapInArrow(raises, "x int")


def killing_a_worker(numbers: DataFrame) -> DataFrame:
    def dies(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield from batches

    return numbers.mapInArrow(dies, "x int")


def dividing_by_zero(numbers: DataFrame) -> DataFrame:
    return numbers.selectExpr("10 div x AS x")


def same(numbers: DataFrame) -> DataFrame:
    return numbers


def collect(batch: DataFrame, _number: int) -> None:
    batch.collect()


def find_the_disk_full(_batch: DataFrame, _number: int) -> None:
    raise OSError("disk full")


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """What PySpark's own logger of failing queries says."""
    text = io.StringIO()
    logger, handler = logging.getLogger("SQLQueryContextLogger"), logging.StreamHandler(text)
    logger.addHandler(handler)
    yield text
    logger.removeHandler(handler)


@pytest.mark.parametrize(
    ("frame", "commit", "told"),
    [
        (raising_in_a_task, collect, "ValueError: bad thing"),
        (killing_a_worker, collect, "Python worker exited unexpectedly"),
        (dividing_by_zero, collect, "[DIVIDE_BY_ZERO] Division by zero"),
        (same, find_the_disk_full, "OSError: disk full"),
    ],
)
def test_the_cause_of_a_failed_batch_is_told_in_a_line_and_not_printed(
    frame: Callable[[DataFrame], DataFrame],
    commit: Callable[[DataFrame, int], None],
    told: str,
    spark: SparkSession,
    tmp_path: Path,
    printed: io.StringIO,
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"x": 0}')
    numbers = spark.readStream.schema("x int").json(str(tmp_path / "in"))
    writer = frame(numbers).writeStream.foreachBatch(commit).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    later = query.exception()
    assert later is not None
    assert cause(raised.value).startswith(told)
    assert cause(later).startswith(told)
    assert printed.getvalue() == ""


def test_the_cause_of_a_failed_job_is_told_in_a_line(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="Traceback") as raised:
        spark.sparkContext.parallelize([0]).map(lambda x: 1 // x).collect()
    assert cause(raised.value) == "ZeroDivisionError: integer division or modulo by zero"


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert cause(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_a_mill_that_cannot_read_a_source_says_why_and_goes_on_when_it_can(tmp_path: Path) -> None:
    """Only what reads the stream waits; the source is tried again."""
    (tmp_path / "bids").mkdir()
    (tmp_path / "bids" / "1.json").write_text('{"item": 1, "ts": 1}')
    script = (
        "CREATE STREAM bid (item int, ts timestamp micros) ORDER BY ts USING json OPTIONS (path 'bids');"
        "CREATE QUERY q AS SELECT item FROM bid"
    )
    with open_mill(home=tmp_path / "home", pool=inline_pool(1), folder=tmp_path) as mill:
        mill.execute(script)
        folder = mill.home.logs["bid"].folder
        folder.rmdir()
        folder.write_text("in the way")
        with pytest.raises(SlicemillError, match=r"^reading bid stopped: NotADirectoryError: "):
            mill.drain()
        folder.unlink()
        folder.mkdir()
        mill.drain()
        assert [timed.row for timed in mill.queries["q"].timed_rows()] == [(1,)]

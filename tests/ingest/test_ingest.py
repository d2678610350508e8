"""Stored columns and rows of a stream while queries are created and dropped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.runtime import spark_ingest
from slicemill.runtime.streams import SourceFailed

BID = (
    "CREATE STREAM bid (item int, price double, ts timestamp micros) ORDER BY ts "
    "USING json OPTIONS (path 'bids'{})"
)
ASK = "CREATE STREAM ask (item int, ts timestamp micros) ORDER BY ts USING json OPTIONS (path 'asks'{})"
# Workers read files themselves, unless an option of Spark's reader is set.
BY_WORKERS, BY_SPARK = "", ", encoding 'UTF-8'"
ITEMS = "CREATE QUERY items AS SELECT item FROM bid"
DEAR = "CREATE QUERY dear AS SELECT item FROM bid WHERE price > 10"
PRICES = "CREATE QUERY prices FROM NOW AS SELECT price FROM bid"
ASKED = "CREATE QUERY asked AS SELECT item FROM ask"


def write(folder: Path, name: str, *rows: tuple[int, float, int]) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(json.dumps({"item": i, "price": p, "ts": ts}) for i, p, ts in rows))


def mill_in(folder: Path, spark: SparkSession, *statements: str) -> Mill:
    for name in ("bids", "asks"):
        (folder / name).mkdir(exist_ok=True)
    mill = Mill(spark, folder / "home", folder=folder)
    try:
        for statement in statements:
            mill.execute(statement)
    except BaseException:
        mill.close()  # Otherwise the workers of the engine would occupy their Spark slots.
        raise
    return mill


def read(mill: Mill) -> None:
    mill.read_all()
    mill.dispatcher.run_all()


def stored(mill: Mill) -> list[list[str]]:
    """Return the stored columns of the bids, epoch by epoch."""
    log = mill.home.logs["bid"]
    names = []
    for epoch in log.epochs():
        table = log.read(epoch)
        names.append([name for name in log.columns.names if table.column(name).null_count < epoch.rows])
    return names


def wait_until(mill: Mill, true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        # Spark's own threads do not notify the dispatcher, so the wait needs a timeout.
        with mill.dispatcher.changed:
            mill.dispatcher.changed.wait(0.05)


def values(mill: Mill, query: str) -> list[tuple[object, ...]]:
    return [timed.row for timed in mill.queries[query].rows()]


@pytest.mark.parametrize("reader", [BY_WORKERS, BY_SPARK])
def test_a_column_is_stored_from_the_creation_of_the_first_query_that_needs_it(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    found = []
    with mill_in(tmp_path, spark, BID.format(reader), ITEMS) as mill:
        for number, statement in enumerate((None, PRICES, "DROP QUERY items"), start=1):
            if statement is not None:
                mill.execute(statement)
            write(tmp_path, f"bids/{number}", (number, float(number), number))
            mill.read_all()
            found.append(stored(mill)[-1])  # Rows that all queries have read are freed later.
            mill.dispatcher.run_all()
        assert found == [["item"], ["item", "price"], ["price"]]
        assert values(mill, "prices") == [(2.0,), (3.0,)]


@pytest.mark.parametrize("reader", [BY_WORKERS, BY_SPARK])
def test_a_new_query_starts_after_rows_that_were_stored_for_earlier_queries(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    write(tmp_path, "bids/1", (1, 1.0, 1))
    with mill_in(tmp_path, spark, BID.format(reader), ITEMS) as mill:
        mill.read_all()
    write(tmp_path, "bids/2", (2, 2.0, 2))
    with mill_in(tmp_path, spark, BID.format(reader), ITEMS, PRICES) as mill:
        mill.read_all()
        mill.dispatcher.run_some()
    # The query existed when the second file was stored, and exists after another restart.
    with mill_in(tmp_path, spark, BID.format(reader), ITEMS, PRICES) as mill:
        read(mill)
        assert values(mill, "items") == [(1,), (2,)]
        assert values(mill, "prices") == [(2.0,)]


@pytest.mark.parametrize("reader", [BY_WORKERS, BY_SPARK])
def test_the_lateness_of_a_row_does_not_depend_on_the_queries_of_earlier_rows(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    found = []
    for number, queries in enumerate(([DEAR], [DEAR, ITEMS])):
        folder = tmp_path / str(number)
        folder.mkdir()
        with mill_in(folder, spark, BID.format(reader), *queries) as mill:
            write(folder, "bids/1", (1, 20.0, 1), (2, 1.0, 9))
            read(mill)
            write(folder, "bids/2", (3, 30.0, 5), (4, 40.0, 9))
            read(mill)
            found.append(values(mill, "dear"))
    assert found == [[(1,), (4,)]] * 2


@pytest.mark.parametrize("reader", [BY_WORKERS, BY_SPARK])
def test_late_rows_are_stored_even_if_only_the_late_stream_has_a_query(
    spark: SparkSession, tmp_path: Path, reader: str
) -> None:
    late = "CREATE QUERY late AS SELECT price FROM bid_late"
    with mill_in(tmp_path, spark, BID.format(reader), DEAR, late) as mill:
        write(tmp_path, "bids/1", (1, 20.0, 9))
        read(mill)
        write(tmp_path, "bids/2", (2, 1.0, 5))
        read(mill)
        assert values(mill, "late") == [(1.0,)]


def test_a_dropped_stream_does_not_stop_other_streams_of_its_spark_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path, "bids/1", (1, 1.0, 1))
    write(tmp_path, "asks/1", (1, 0.0, 1))
    with mill_in(tmp_path, spark, BID.format(BY_SPARK), ASK.format(BY_SPARK), ITEMS, ASKED) as mill:
        read(mill)
        mill.execute("DROP QUERY asked; DROP STREAM ask")
        write(tmp_path, "bids/2", (2, 1.0, 2))
        write(tmp_path, "asks/2", (2, 0.0, 2))
        read(mill)
        assert values(mill, "items") == [(1,), (2,)]
        assert mill.streams["ask"].counts.rows == 1
        with pytest.raises(SlicemillError, match="ask was read under another declaration"):
            mill.execute(ASK.format(BY_SPARK).replace("item int", "item bigint") + f"; {ASKED}")
    write(tmp_path, "bids/3", (3, 1.0, 3))
    with mill_in(tmp_path, spark, BID.format(BY_SPARK), ITEMS) as mill:
        read(mill)
        assert values(mill, "items") == [(1,), (2,), (3,)]


def test_a_failing_spark_source_stops_only_its_stream_and_is_retried(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_ingest, "_TEND_EVERY_S", 3_600.0)  # so that only this test checks the sources
    trade = "CREATE STREAM trade (item int) USING parquet OPTIONS (path 'trades', recursiveFileLookup 'true')"
    (tmp_path / "trades").mkdir()
    pq.write_table(pa.table({"item": [1]}), tmp_path / "trades" / "1.parquet")
    damaged = tmp_path / "trades" / "2.parquet"
    statements = (BID.format(BY_SPARK), ITEMS, trade, "CREATE QUERY traded AS SELECT item FROM trade")
    with mill_in(tmp_path, spark, *statements) as mill:
        read(mill)
        damaged.write_bytes(b"PAR1 and nothing else")
        write(tmp_path, "bids/1", (1, 1.0, 1))
        with pytest.raises(SourceFailed, match="reading trade stopped: "):
            mill.read_all()
        mill.dispatcher.run_all()
        assert values(mill, "items") == [(1,)] and values(mill, "traded") == [(1,)]
    write(tmp_path, "bids/2", (2, 2.0, 2))
    with mill_in(tmp_path, spark, *statements) as mill:
        ingest, stream = mill._ingest, mill.streams["trade"]
        mill.start()
        reading = ingest._running["trade"]
        for number, pause in enumerate((200_000, 400_000, 800_000)):
            query, now = reading.query, number * 5_000_000
            assert query is not None
            wait_until(mill, partial(has_failed, query))
            ingest.retry_due(now)
            assert stream.error is not None and stream.retry_us == now + pause
            ingest.retry_due(stream.retry_us - 1)
            assert reading.query is None
            if pause == 800_000:
                pq.write_table(pa.table({"item": [2]}), damaged)
            ingest.retry_due(stream.retry_us)
        wait_until(mill, lambda: values(mill, "traded") == [(1,), (2,)])
        assert stream.error is None
        wait_until(mill, lambda: values(mill, "items") == [(1,), (2,)])


def has_failed(query: StreamingQuery) -> bool:
    return query.exception() is not None

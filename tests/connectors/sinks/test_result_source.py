"""Results as a Spark source: each row of the log once, during concurrent commits, after a checkpoint."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from connectors.sinks.logs import (
    EVERY_TYPE,
    NOTHING,
    ONE_OF_EACH,
    append,
    free_read,
    home_with,
    make_anew,
    more_numbers,
    numbers_home,
    pass_by,
)
from slicemill.connectors.results import ResultStreamReader, SlicemillSource, result_options, table_frame
from slicemill.connectors.sinks.delivery import SinkRunner
from slicemill.errors import SlicemillError
from slicemill.lifecycle.compaction import fold_epochs
from slicemill.storage.changes import Change
from slicemill.types import INT, VARCHAR, Column, Timed, changelog


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> Iterator[SparkSession]:
    spark.dataSource.register(SlicemillSource)
    yield spark


def stream_reader(home: Path, **options: str) -> ResultStreamReader:
    return ResultStreamReader(result_options({"home": str(home), "query": "q", **options}))


def drained(frame: DataFrame, checkpoint: Path) -> list[int]:
    """Run the stream to its current end; return the values of all micro-batches in order."""
    tables: list[pa.Table] = []
    query = (
        frame.writeStream.foreachBatch(lambda batch, number: tables.append(batch.toArrow()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [n for table in tables for n in table.column("n").to_pylist()]


@pytest.mark.slow_cpu
def test_the_current_table_of_a_changelog_is_a_data_frame(registered: SparkSession, tmp_path: Path) -> None:
    schema = changelog((Column("item", VARCHAR), Column("n", INT)), ("item",))
    home = home_with(tmp_path, "q", schema)
    append(home, [Timed(1, ("insert", "a", 1)), Timed(2, ("insert", None, 3))])

    def table() -> set[tuple[object, ...]]:
        frame = table_frame(registered, home.folder, "q")
        assert frame.columns == ["_ts", "item", "n"]
        return set(map(tuple, frame.select("item", "n").collect()))

    assert table() == {("a", 1), (None, 3)}
    changes = [("update_before", "a", 1), ("update_after", "a", 2), ("delete", None, 3), ("insert", "b", 4)]
    append(home, [Timed(3, row) for row in changes])
    assert table() == {("a", 2), ("b", 4)}
    log = home.logs["q"]
    done = fold_epochs(log, schema, log.epochs())
    home.commit(Change(based={"q": (done.upto, done.base)}))
    append(home, [Timed(4, ("delete", "b", 4))])
    assert table() == {("a", 2)}


def test_a_spark_task_folds_the_changes_of_a_table(tmp_path: Path) -> None:
    schema = changelog((Column("item", VARCHAR), Column("n", INT)), ("item",))
    home = home_with(tmp_path, "q", schema)
    source = SlicemillSource({"home": str(home.folder), "query": "q", "mode": "table"})
    assert source.schema().fieldNames() == ["_ts", "item", "n"]
    reader = source.reader(source.schema())
    assert reader.partitions() == []
    append(home, [Timed(1, ("insert", "a", 1)), Timed(2, ("insert", "b", 3))])
    append(home, [Timed(3, ("update_before", "a", 1)), Timed(3, ("update_after", "a", 2))])
    append(home, [Timed(4, ("delete", "b", 3))])
    (partition,) = pickle.loads(pickle.dumps(reader.partitions()))
    table = pa.Table.from_batches(reader.read(partition))  # type: ignore[arg-type]
    assert table.drop_columns(["_ts"]).to_pylist() == [{"item": "a", "n": 2}]


def test_table_mode_is_not_available_for_streams() -> None:
    source = SlicemillSource({"home": "work", "query": "q", "mode": "table"})
    with pytest.raises(SlicemillError, match="a stream of changes is read without it"):
        source.streamReader(StructType())
    with pytest.raises(SlicemillError, match="mode is log or table"):
        result_options({"home": "work", "query": "q", "mode": "tables"})


def test_a_stream_of_changes_starts_with_the_compacted_table(
    registered: SparkSession, tmp_path: Path
) -> None:
    schema = changelog((Column("n", INT),), ())
    home = home_with(tmp_path, "q", schema)
    append(home, [Timed(1, ("insert", 1)), Timed(2, ("update_before", 1)), Timed(2, ("update_after", 2))])
    log = home.logs["q"]
    done = fold_epochs(log, schema, log.epochs())
    home.commit(Change(based={"q": (done.upto, done.base)}))
    append(home, [Timed(3, ("delete", 2))])
    frame = (
        registered.readStream.format("slicemill").option("home", str(home.folder)).option("query", "q").load()
    )
    assert drained(frame, tmp_path / "checkpoint") == [2, 2]


def test_a_batch_read_returns_the_rows_of_the_log_with_every_type(
    registered: SparkSession, tmp_path: Path
) -> None:
    home = home_with(tmp_path, "all types", EVERY_TYPE)
    append(home, [Timed(5, ONE_OF_EACH), Timed(6, NOTHING)], "all types")
    frame = registered.read.format("slicemill").options(home=str(tmp_path), query="all types").load()
    found = frame.toArrow()
    log = home.logs["all types"]
    stored = log.read(log.epochs()[0]).drop_columns(["_seq", "_arr"])
    assert found.column_names == stored.column_names
    assert found.column("_ts").type == pa.timestamp("us", tz="UTC")
    assert found.column("_ts").cast(pa.int64()).to_pylist() == [5, 6]
    for name in stored.column_names[1:]:
        assert found.column(name).to_pylist() == stored.column(name).to_pylist(), name


def test_a_stream_drains_every_row_once_and_resumes_from_its_checkpoint(
    registered: SparkSession, tmp_path: Path
) -> None:
    home = numbers_home(tmp_path / "home")
    frame = registered.readStream.format("slicemill").options(home=str(home.folder), query="q").load()
    assert drained(frame, tmp_path / "checkpoint") == [0, 1, 2, 3, 4, 5]
    more_numbers(home, 6, 7)
    more_numbers(home, 8)
    assert drained(frame, tmp_path / "checkpoint") == [6, 7, 8]


def test_offsets_follow_a_concurrent_writer_and_skip_epochs_of_other_queries(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    reader = stream_reader(tmp_path)
    start = reader.initialOffset()
    assert start == {"epoch": -1}
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"epoch": 4}
    pass_by(home)
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # no batch for an epoch of another query
    more_numbers(home, 6)
    assert reader.latestOffset(end, ReadAllAvailable()) == {"epoch": 7}


def test_a_row_limit_ends_a_batch_at_the_epoch_that_reaches_it(tmp_path: Path) -> None:
    numbers_home(tmp_path)
    reader = stream_reader(tmp_path, maxRowsPerTrigger="4")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(4)
    assert reader.latestOffset({"epoch": -1}, limit) == {"epoch": 3}
    assert reader.latestOffset({"epoch": 3}, limit) == {"epoch": 4}


def test_a_drain_ends_at_the_end_of_the_log_at_its_start(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    reader = stream_reader(tmp_path)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset({"epoch": -1}, ReadAllAvailable())
    more_numbers(home, 6)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_used_reader_can_be_pickled_for_a_spark_task(tmp_path: Path) -> None:
    numbers_home(tmp_path)
    reader = stream_reader(tmp_path)
    parts = reader.partitions({"epoch": -1}, reader.latestOffset({"epoch": -1}, ReadAllAvailable()))
    task = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in pickle.loads(pickle.dumps(parts)) for batch in task.read(part)]
    assert [n for batch in batches for n in batch.column("n").to_pylist()] == [0, 1, 2, 3, 4, 5]


def test_epochs_that_a_named_reader_has_not_read_are_not_freed(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    reader = stream_reader(tmp_path, reader="report")
    reader.initialOffset()
    with SinkRunner(home) as runner:
        assert free_read(home, runner.cursors()) == 0
        reader.commit({"epoch": 1})
        assert free_read(home, runner.cursors()) == 1
    assert home.logs["q"].freed == 1
    assert len(reader.partitions({"epoch": 1}, {"epoch": 4})) == 1


def test_a_read_of_freed_epochs_is_an_error(tmp_path: Path) -> None:
    numbers_home(tmp_path).commit(Change(freed={"q": 4}))
    reader = stream_reader(tmp_path)
    with pytest.raises(SlicemillError, match="epochs of q after 1, up to 3, are freed"):
        reader.partitions({"epoch": 1}, {"epoch": 4})
    assert reader.initialOffset() == {"epoch": 3}
    assert len(reader.partitions({"epoch": 3}, {"epoch": 4})) == 1


def test_epochs_of_other_queries_in_between_are_no_error(tmp_path: Path) -> None:
    home = numbers_home(tmp_path)
    more_numbers(home, 6)
    home.commit(Change(freed={"q": 6}))
    assert len(stream_reader(tmp_path).partitions({"epoch": 4}, {"epoch": 6})) == 1


def test_an_offset_beyond_the_last_epoch_reports_a_replaced_home_directory(tmp_path: Path) -> None:
    numbers_home(tmp_path)
    with pytest.raises(SlicemillError, match="ends with epoch 5, before 9: it was replaced"):
        stream_reader(tmp_path).latestOffset({"epoch": 9}, ReadAllAvailable())


def test_a_reader_continues_after_its_query_was_recreated_unless_the_columns_changed(tmp_path: Path) -> None:
    home, reader = numbers_home(tmp_path), stream_reader(tmp_path)
    end = reader.latestOffset({"epoch": -1}, ReadAllAvailable())
    make_anew(home)
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    later = {"epoch": more_numbers(home, 6)}
    assert reader.latestOffset(end, ReadAllAvailable()) == later
    (part,) = reader.partitions(end, later)
    assert [n for batch in reader.read(part) for n in batch.column("n").to_pylist()] == [6]
    make_anew(home, EVERY_TYPE)
    with pytest.raises(SlicemillError, match="made anew with other columns"):
        reader.latestOffset(later, ReadAllAvailable())


def test_a_missing_home_directory_or_query_is_reported(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="there is no home in"):
        stream_reader(tmp_path / "nowhere").initialOffset()
    home_with(tmp_path, "quick", EVERY_TYPE)
    with pytest.raises(SlicemillError, match=r"there is no query or stream quik in .*; did you mean quick"):
        stream_reader(tmp_path, query="quik").initialOffset()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"home": "h"}, "needs the option query"),
        ({"query": "q"}, "needs the option home"),
        ({"home": "h", "query": "q", "maxRowsPerTrigger": "0"}, "above 0, not '0'"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        result_options(options)

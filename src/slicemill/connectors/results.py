"""Spark data source for the results of a query.

    spark.dataSource.register(SlicemillSource)
    spark.readStream.format("slicemill").option("home", "work").option("query", "hot_items").load()

Rows have `_ts`, their timestamp, and the columns of the query. An offset is the number of the last epoch that
was read. An epoch is what one commit appended to the log. Epochs are numbered for the whole home directory,
so the epochs of a query have gaps. Spark tasks map the files of the log into memory. They do not communicate
with the engine, which may be running and writing. `spark.read` returns the current content of the log. If a
query is dropped and created again with the same columns, reading continues with the new results.

With the option `mode` = `table`, `spark.read` returns the current rows of a changelog, without `_op`.

Options:

    home, query
    mode                log (default) or table
    reader              name of this consumer, under which the home directory stores its cursor; unread epochs
                        are then not freed, and a slow consumer does not fail
    maxRowsPerTrigger   maximum number of rows of a batch; exceeded if a single epoch has more rows
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from slicemill.columns.arrow_schema import as_results, from_arrow, with_system_columns
from slicemill.columns.changelog import table_of_now
from slicemill.connectors.sinks.sink import READERS, SinkCursor, open_cursor
from slicemill.errors import SlicemillError, did_you_mean
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.log import Epoch, Log, read_epochs
from slicemill.types import OP

FORMAT = "slicemill"

# Minimum number of rows for a separate Spark task.
_ROWS_PER_PARTITION = 100_000


@dataclass(frozen=True, slots=True)
class ResultOptions:
    home: Path
    query: str
    reader: str | None
    max_rows: int | None
    as_table: bool = False


class EpochsPartition(InputPartition):
    """Adjacent epochs of a log, which Spark tasks read without the journal."""

    def __init__(self, folder: Path, columns: bytes, epochs: Sequence[Epoch], as_table: bool = False) -> None:
        super().__init__(epochs[0].number)
        self.folder = folder
        self.columns = columns
        self.epochs = tuple(epochs)
        self.as_table = as_table


def result_options(given: Mapping[str, str]) -> ResultOptions:
    """Check the options of a Spark read, whose names are case-insensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    missing = [name for name in ("home", "query") if not options.get(name)]
    if missing:
        raise SlicemillError(f"reading results needs the option {missing[0]}")
    most = options.get("maxrowspertrigger")
    if most is not None and not (most.isdecimal() and int(most)):
        raise SlicemillError(f"maxRowsPerTrigger is an integer above 0, not {most!r}")
    mode = options.get("mode", "log")
    if mode not in ("log", "table"):
        raise SlicemillError(f"mode is log or table, not {mode!r}")
    # The path is resolved here, because other processes have other working directories.
    home = Path(options["home"]).resolve()
    most_rows = None if most is None else int(most)
    return ResultOptions(home, options["query"], options.get("reader"), most_rows, mode == "table")


def _log_of(home: HomeReader, name: str) -> Log:
    log = home.logs.get(name)
    if log is None:
        hint = did_you_mean(name, home.logs) or "`slicemill log ls` shows what there is"
        raise SlicemillError(f"there is no query or stream {name} in {home.folder}; {hint}")
    return log


def _spark_rows(table: pa.Table) -> pa.Table:
    shown = as_results(table)
    # Spark compares this schema with a schema in which all fields are nullable and without metadata.
    plain = pa.schema([pa.field(field.name, field.type) for field in shown.schema])
    return pa.Table.from_arrays(shown.columns, schema=plain)


def _current_rows(changes: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return the current rows of a changelog.

    No key column is needed, because each change contains the old row.
    """
    if OP not in columns.names:
        return changes
    return table_of_now(changes, replace(from_arrow(columns), changelog=True))


def _partitions(log: Log, epochs: Iterable[Epoch]) -> list[InputPartition]:
    columns = log.columns_shown.serialize().to_pybytes()
    parts: list[list[Epoch]] = []
    rows = _ROWS_PER_PARTITION
    for epoch in epochs:
        if rows >= _ROWS_PER_PARTITION:
            parts.append([])
            rows = 0
        parts[-1].append(epoch)
        rows += epoch.rows
    return [EpochsPartition(log.folder, columns, part) for part in parts]


def _batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, EpochsPartition):
        return  # Spark's placeholder for an empty read
    columns = pa.ipc.read_schema(pa.py_buffer(partition.columns))
    if partition.as_table:
        tables = [read_epochs(partition.folder, columns, [epoch]) for epoch in partition.epochs]
        yield from _spark_rows(_current_rows(pa.concat_tables(tables), columns)).to_batches()
        return
    for epoch in partition.epochs:
        yield from _spark_rows(read_epochs(partition.folder, columns, [epoch])).to_batches()


class SlicemillSource(DataSource):
    """Spark data source with the format name `slicemill`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        options = result_options(self.options)
        columns = _log_of(HomeReader(options.home), options.query).columns_shown
        empty = with_system_columns(columns).empty_table()
        shown = _spark_rows(_current_rows(empty, columns) if options.as_table else empty).schema
        return StructType([StructField(field.name, from_arrow_type(field.type)) for field in shown])

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return ResultReader(result_options(self.options))

    # Spark passes the schema as a keyword argument.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        del schema
        options = result_options(self.options)
        if options.as_table:
            raise SlicemillError("mode table is for spark.read; a stream of changes is read without it")
        return ResultStreamReader(options)


def table_frame(spark: SparkSession, home: Path, query: str) -> DataFrame:
    """Return the results of a query as a DataFrame.

    For a changelog, the DataFrame has the current rows. Spark plans a source once per DataFrame. To see later
    results, create a new DataFrame.
    """
    spark.dataSource.register(SlicemillSource)
    reader = spark.read.format(FORMAT).option("home", str(home)).option("query", query)
    return reader.option("mode", "table").load()


class ResultReader(DataSourceReader):
    """Batch reader of Spark, which reads the current content of a query's log."""

    def __init__(self, options: ResultOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        log = _log_of(HomeReader(self._options.home), self._options.query)
        epochs = log.epochs()
        if self._options.as_table and epochs:
            return [
                EpochsPartition(log.folder, log.columns_shown.serialize().to_pybytes(), epochs, as_table=True)
            ]
        return _partitions(log, epochs)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition)


class ResultStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming reader of Spark, which reads the results of a query.

    The offset `{"epoch": n}` means that all epochs up to n have been read.
    """

    def __init__(self, options: ResultOptions) -> None:
        self._options = options
        self._home: HomeReader | None = None
        self._columns: pa.Schema | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        log = self._log()
        start = -1 if log.base is not None else log.freed
        self._keep_cursor(start)
        return {"epoch": start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        log = self._log()
        self._check_home(start["epoch"])
        if self._draining and self._target is None:
            # This streaming run ends at the current end of the log. Later results belong to the next run.
            self._target = log.head
        rows, last = 0, start["epoch"]
        for epoch in log.epochs(after=start["epoch"], upto=self._target):
            last = epoch.number
            rows += epoch.rows
            if isinstance(limit, ReadMaxRows) and rows >= limit.max_rows:
                break
        return {"epoch": last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        log = self._log()
        if log.has_freed_after(start["epoch"]) or (start["epoch"] < log.freed and log.base is None):
            raise SlicemillError(
                f"epochs of {self._options.query} after {start['epoch']}, up to {log.freed}, are freed; "
                "start with a new checkpoint, and give the option reader to have the home keep a cursor"
            )
        return _partitions(log, log.epochs(after=start["epoch"], upto=end["epoch"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        self._keep_cursor(end["epoch"])

    def __getstate__(self) -> dict[str, object]:
        # Spark pickles the reader for its tasks, which read the files of the log but not the journal.
        return {**self.__dict__, "_home": None, "_columns": None}

    def _log(self) -> Log:
        """Return the log of the query, with all new commits."""
        if self._home is None:
            self._home = HomeReader(self._options.home)
        else:
            self._home.poll()
        log = _log_of(self._home, self._options.query)
        if self._columns is None:
            self._columns = log.columns_shown
        elif not log.columns_shown.equals(self._columns):
            raise SlicemillError(
                f"{self._options.query} was dropped and made anew with other columns; start this query again"
            )
        return log

    def _check_home(self, epoch: int) -> None:
        assert self._home is not None
        if epoch > self._home.epoch:
            raise SlicemillError(
                f"{self._options.home} ends with epoch {self._home.epoch}, before {epoch}: it was replaced "
                "by another home or by an older copy; start with a new checkpoint"
            )

    def _keep_cursor(self, epoch: int) -> None:
        if self._options.reader is not None:
            self._cursor(self._options.reader).advance(epoch)

    def _cursor(self, reader: str) -> SinkCursor:
        return open_cursor(self._options.home, READERS, reader, self._options.query)

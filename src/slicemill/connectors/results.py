"""A query's results as a Spark source, for any Spark program that sees the mill's home.

    spark.dataSource.register(SlicemillSource)
    spark.readStream.format("slicemill").option("home", "work").option("query", "hot_items").load()

Rows have `_ts`, their timestamp, and the query's columns. An offset is the number of the last epoch that is
out; tasks map the log's chunks, no mill takes part, and one may go on writing meanwhile. `spark.read` gives
what the log holds now.

Options: `home`, `query`; `reader`, a name under which the log keeps a place for this consumer, so that what
it has not read is not freed (without one, a query that falls behind may find epochs gone, and says so);
`maxRowsPerTrigger` (an epoch is never split, so a batch may have more).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructField, StructType

from slicemill.connectors.sinks.cursor import READERS, Cursor, open_cursor
from slicemill.connectors.sinks.sink import with_instants
from slicemill.errors import SlicemillError
from slicemill.storage.arrow_schema import ARRIVAL, with_system_columns
from slicemill.storage.home import folder_name
from slicemill.storage.log import StreamLog
from slicemill.storage.log_epoch import Epoch
from slicemill.storage.log_read import read_epoch

FORMAT = "slicemill"

# A task for fewer rows than this costs more than it saves.
_ROWS_PER_PARTITION = 100_000


@dataclass(frozen=True, slots=True)
class ResultOptions:
    home: Path
    query: str
    reader: str | None
    max_rows: int | None

    @property
    def folder(self) -> Path:
        return self.home / "logs" / folder_name(self.query)


class EpochsPartition(InputPartition):
    """Neighbouring epochs; all that a task needs to read them without looking at the manifest."""

    def __init__(self, folder: Path, columns: bytes, epochs: Sequence[Epoch]) -> None:
        super().__init__(epochs[0].number)
        self.folder = folder
        self.columns = columns
        self.epochs = tuple(epochs)


def result_options(given: Mapping[str, str]) -> ResultOptions:
    """Options as Spark passes them, checked; their names are not case-sensitive."""
    options = {key.lower(): str(value) for key, value in given.items()}
    missing = [name for name in ("home", "query") if not options.get(name)]
    if missing:
        raise SlicemillError(f"reading results needs the option {missing[0]}")
    most = options.get("maxrowspertrigger")
    if most is not None and not (most.isdecimal() and int(most)):
        raise SlicemillError(f"maxRowsPerTrigger is a whole number above 0, not {most!r}")
    # Relative to this process: the one that reads offsets and tasks may be elsewhere.
    home = Path(options["home"]).resolve()
    return ResultOptions(home, options["query"], options.get("reader"), None if most is None else int(most))


def _shown(table: pa.Table) -> pa.Table:
    shown = with_instants(table.drop_columns([ARRIVAL]))
    # Spark compares schemas to the letter, and its own have neither our metadata nor our nullability.
    plain = pa.schema([pa.field(field.name, field.type) for field in shown.schema])
    return pa.Table.from_arrays(shown.columns, schema=plain)


def _partitions(log: StreamLog, epochs: Iterable[Epoch]) -> list[InputPartition]:
    columns = log.columns.serialize().to_pybytes()
    parts: list[list[Epoch]] = []
    rows = _ROWS_PER_PARTITION
    for epoch in epochs:
        if epoch.rows and rows >= _ROWS_PER_PARTITION:
            parts.append([])
            rows = 0
        if epoch.rows:
            parts[-1].append(epoch)
            rows += epoch.rows
    return [EpochsPartition(log.folder, columns, part) for part in parts]


def _batches(partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, EpochsPartition):
        return  # what Spark passes where there is nothing to read
    columns = pa.ipc.read_schema(pa.py_buffer(partition.columns))
    for epoch in partition.epochs:
        yield from _shown(read_epoch(partition.folder, columns, epoch)).to_batches()


class SlicemillSource(DataSource):
    """The `slicemill` format."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        columns = StreamLog(result_options(self.options).folder).columns
        shown = _shown(with_system_columns(columns).empty_table()).schema
        return StructType([StructField(field.name, from_arrow_type(field.type)) for field in shown])

    def reader(self, schema: StructType) -> DataSourceReader:
        del schema
        return ResultReader(result_options(self.options))

    # Spark passes the schema by name.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        del schema
        return ResultStreamReader(result_options(self.options))


class ResultReader(DataSourceReader):
    """What the log holds now."""

    def __init__(self, options: ResultOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        log = StreamLog(self._options.folder)
        return _partitions(log, log.epochs())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition)


class ResultStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are `{"epoch": n}`: epoch n and those before it are out."""

    def __init__(self, options: ResultOptions) -> None:
        self._options = options
        self._opened: StreamLog | None = None
        self._draining = False
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        start = self._log().first - 1
        self._keep_place(start)
        return {"epoch": start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._draining = True

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        log = self._log()
        log.refresh()
        if self._draining and self._target is None:
            # What there is when the run starts; results that come while it runs are for the next one.
            self._target = log.head
        if start["epoch"] > log.head:
            raise SlicemillError(
                f"the results of {self._options.query} end with epoch {log.head}, before {start['epoch']}: "
                "the query was dropped and made anew; start with a new checkpoint"
            )
        end = log.head if self._target is None else self._target
        rows, last = 0, start["epoch"]
        for epoch in takewhile(lambda epoch: epoch.number <= end, log.epochs(after=start["epoch"])):
            # An epoch without rows is passed with the next one that has some: no batch for it alone.
            last = epoch.number if epoch.rows else last
            rows += epoch.rows
            if isinstance(limit, ReadMaxRows) and rows >= limit.max_rows:
                break
        return {"epoch": last}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        log = self._log()
        log.refresh()
        if start["epoch"] < log.first - 1:
            raise SlicemillError(
                f"epochs {start['epoch'] + 1} to {log.first - 1} of {self._options.query} are freed; "
                "start with a new checkpoint, and give the option reader to keep a place in the log"
            )
        epochs = log.epochs(after=start["epoch"])
        return _partitions(log, takewhile(lambda epoch: epoch.number <= end["epoch"], epochs))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _batches(partition)

    def commit(self, end: dict[str, int]) -> None:
        self._keep_place(end["epoch"])

    def __getstate__(self) -> dict[str, object]:
        # Spark sends the reader to its tasks; they read chunks, and have no use for an open log.
        return {**self.__dict__, "_opened": None}

    def _log(self) -> StreamLog:
        if self._opened is None:
            self._opened = StreamLog(self._options.folder)
        return self._opened

    def _keep_place(self, epoch: int) -> None:
        if self._options.reader is not None:
            self._cursor(self._options.reader).advance(epoch)

    def _cursor(self, reader: str) -> Cursor:
        return open_cursor(self._options.home, READERS, reader, self._options.query)

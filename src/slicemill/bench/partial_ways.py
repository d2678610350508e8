"""Ways from a folder of events to partial results of panes: slicemill's, and with partials made earlier.

Each way reads all files as a stream, so many a batch, to the end:

- `Rows` stores rows in the log, and a unit makes partials of them: what slicemill does;
- `ByCatalyst` lets Catalyst group a batch by key and pane, and stores what comes out;
- `ByTasks` makes partials in the tasks that read the files, with the kernels that the unit would use.

The last two do only that much. What a unit has to do with partials is what it does with rows of which a pane
has one for each key: `Rows` over such files measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from slicemill.esl import bind
from slicemill.esl import types as t
from slicemill.esl.catalog import Stream
from slicemill.esl.expression import ColumnRef
from slicemill.kernels.keys import distinct_keys
from slicemill.kernels.panes.edges import cut
from slicemill.kernels.panes.entries import entries_of, to_table
from slicemill.kernels.panes.partials import Known
from slicemill.kernels.panes.sums import Sum
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.runtime.arrow_schema import to_arrow
from slicemill.runtime.chunk import write_chunk
from slicemill.runtime.log import CHUNKS
from slicemill.runtime.mill import Mill, wall_clock_us
from slicemill.runtime.needs import need_of
from slicemill.runtime.reader import Reader
from slicemill.runtime.source_direct import direct_files, read_as_declared
from slicemill.runtime.source_frame import RAW, REASON, streaming_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "k BIGINT, v BIGINT, ts TIMESTAMP"
_SLIDE_US = 1_000_000
_COUNT = "rows bigint"


@dataclass(frozen=True, slots=True)
class Folder:
    """Files of events that a stream reads."""

    path: Path
    form: str
    keyed: bool
    files_per_batch: int

    @property
    def declaration(self) -> str:
        options = f"path '{self.path}', maxFilesPerTrigger {self.files_per_batch}"
        return f"CREATE STREAM event ({SCHEMA}) ORDER BY ts USING {self.form} OPTIONS ({options});"

    @property
    def script(self) -> str:
        key, by = ("k, ", " GROUP BY k") if self.keyed else ("", "")
        window = "[RANGE 60 SECONDS SLIDE 1 SECOND]"
        return f"{self.declaration} CREATE QUERY means AS SELECT {key}avg(v) AS m FROM event {window}{by};"

    @property
    def stream(self) -> Stream:
        return bind(self.declaration).catalog.declared_stream("event")


class Rows:
    """Ingest and units of a mill, one after the other."""

    def __init__(self, spark: SparkSession, folder: Folder, home: Path) -> None:
        self._mill = Mill(spark, home)
        self._mill.execute(folder.script)
        self._mill.open()
        catalog = self._mill.catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        self._needs = {"event": need_of("event", graph)}
        self._reader = Reader(spark, self._mill.home.sources, Path(), wall_clock_us, lambda: None)

    def ingest(self) -> None:
        self._reader.read_to_the_end(self._mill.intakes, self._needs)

    def units(self) -> None:
        self._mill.dispatcher.run_all()

    @property
    def results(self) -> int:
        return self._mill.queries["means"].metrics().rows

    def close(self) -> None:
        self._mill.close()


def by_catalyst(spark: SparkSession, folder: Folder, home: Path) -> int:
    """Entries that Catalyst made; bad rows are groups too, with what is wrong with them."""
    frame = streaming_frame(spark, folder.stream, home)
    keys = ["k"] if folder.keyed else []

    def grouped(batch: DataFrame) -> DataFrame:
        pane = F.floor(F.unix_micros("ts") / _SLIDE_US).alias("pane")
        # A sum of many BIGINTs may be none: its halves are.
        halves = F.sum(F.shiftright("v", 32)).alias("high"), F.sum(F.expr("v & 4294967295")).alias("low")
        times = F.min("ts").alias("first"), F.max("ts").alias("last")
        count = F.count("*").alias("rows"), F.count("v").alias("known")
        made = batch.groupBy(*keys, pane, RAW, REASON).agg(*count, *halves, *times)
        return made.mapInArrow(partial(_stored, home), _COUNT)

    return _read(frame, grouped, home)


def by_tasks(spark: SparkSession, folder: Folder, home: Path) -> int:
    """Entries made by the tasks that read files, or get rows from Catalyst."""
    files = direct_files(spark, folder.stream, Path())
    if files is not None:
        lines = files.paths().mapInArrow(partial(_entries_of_files, home, folder.keyed), _COUNT)
    else:
        frame = streaming_frame(spark, folder.stream, home)
        lines = frame.mapInArrow(partial(_entries_of_rows, home, folder.keyed), _COUNT)
    return _read(lines, lambda batch: batch, home)


def _read(frame: DataFrame, made: Callable[[DataFrame], DataFrame], home: Path) -> int:
    rows: list[int] = []
    (home / CHUNKS).mkdir(parents=True)

    def commit(batch: DataFrame, _: int) -> None:
        rows.extend(line.rows for line in made(batch).collect())

    writer = frame.writeStream.foreachBatch(commit).option("checkpointLocation", str(home / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return sum(rows)


def _stored(home: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [batch for batch in batches if batch.num_rows]
    if found:
        chunk = write_chunk(home, CHUNKS, pa.Table.from_batches(found))
        yield pa.record_batch([pa.array([chunk.rows])], ["rows"])


def _entries_of_files(home: Path, keyed: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    paths = [path for batch in batches for path in batch.column("path").to_pylist()]
    declared = to_arrow(
        bind(f"CREATE STREAM event ({SCHEMA}) ORDER BY ts;").catalog.declared_stream("event").schema
    )
    tables = [read_as_declared(path, declared, declared.names, "ts") for path in paths]
    if tables:
        yield from _stored(home, iter(_entries(pa.concat_tables(tables), keyed).to_batches()))


def _entries_of_rows(home: Path, keyed: bool, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = [batch for batch in batches if batch.num_rows]
    if found:
        table = pa.Table.from_batches(found)
        good = table.filter(table.column(REASON).is_null())
        yield from _stored(home, iter(_entries(good, keyed).to_batches()))


def _entries(table: pa.Table, keyed: bool) -> pa.Table:
    """What panes keep of rows for a mean, as the unit would make it."""
    times = table.column("ts").cast(pa.int64()).to_numpy()
    if np.any(times[1:] < times[:-1]):
        order = np.argsort(times, kind="stable")
        table, times = table.take(pa.array(order)), times[order]
    rows = len(times)
    keys = distinct_keys([table.column("k")] if keyed else [], rows)
    value = ColumnRef("v", t.BIGINT)
    partials = {made.name: made for made in (Known(value), Sum(value))}
    column, places = table.column("v").combine_chunks(), np.arange(rows)
    lifted: dict[str, Any] = {name: made.lift(column, places) for name, made in partials.items()}
    panes = cut(times, ((_SLIDE_US, 0),), int(times[0]) - _SLIDE_US)
    entries, first = entries_of(panes, (keys.codes, len(keys.values)), times, lifted, partials)
    return to_table(entries).append_column("k", table.column("k").take(pa.array(first)))

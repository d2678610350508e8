"""What ingest does in a task: rows become chunks, and a line per chunk says to the driver what there is.

Rows come from Catalyst, checked; or, where Parquet files are just as declared, from the files themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from slicemill.connectors.spark.direct import read_as_declared
from slicemill.connectors.spark.frame import RAW, REASON
from slicemill.esl.types import Schema
from slicemill.ingest.intake import packed
from slicemill.ingest.needs import Need
from slicemill.kernels.expressions import compile_vector
from slicemill.kernels.stateless import filter_table
from slicemill.storage.arrow_schema import TS, to_arrow
from slicemill.storage.chunk import ChunkInfo, write_chunk
from slicemill.storage.log import CHUNKS

# What a line is about: a chunk of rows, one of bad rows, rows that nobody wants, a file that was not read.
GOOD, BAD, PASSED, LEFT = "good", "bad", "passed", "left"

LINE = (
    "stream string, kind string, path string, rows bigint, bytes bigint, min_ts bigint, max_ts bigint, "
    "waited_s double, packed_s double"
)
_TYPES = (*[pa.string()] * 3, *[pa.int64()] * 4, *[pa.float64()] * 2)
_NAMES = [part.split()[0] for part in LINE.split(", ")]


# The condition of many queries costs more than storing rows; a few rows tell whether it leaves out enough.
_SAMPLED, _MANY = 2_000, 20_000
# A worker packs for the same streams again and again.
_compiled = lru_cache(maxsize=100)(compile_vector)


@dataclass(frozen=True, slots=True)
class Packer:
    """Writes the chunks of a stream: the columns that are needed, in timestamp order."""

    stream: str
    folder: Path
    errors_folder: Path
    schema: Schema
    time_column: str | None  # of an external stream
    need: Need

    @property
    def stored(self) -> list[str]:
        """The columns of a chunk: one at least, or it would have no rows."""
        needed = [name for name in self.schema.names if name in self.need.columns]
        return needed or [self.time_column or self.schema.names[0]]

    @property
    def read(self) -> list[str]:
        """The columns that are read to make a chunk."""
        return [name for name in self.schema.names if name in (*self.stored, self.time_column)]

    def from_catalyst(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All rows of a partition, at most one chunk of good rows and one of bad rows."""
        watch = _Watch()
        arrived = [batch for batch in batches if batch.num_rows]
        if not arrived:
            return
        watch.waited()
        table = pa.Table.from_batches(arrived)
        reasons = table.column(REASON)
        if reasons.null_count < len(reasons):
            bad = table.filter(pc.is_valid(reasons)).select([RAW, REASON]).rename_columns(["raw", "reason"])
            yield self._line(BAD, write_chunk(self.errors_folder, CHUNKS, bad))
            table = table.filter(pc.is_null(reasons))
        if table.num_rows:
            yield self._good(table, watch)

    def from_files(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows of files that are as declared; the others are named, for Catalyst to read."""
        paths = [path for batch in batches for path in batch.column("path").to_pylist()]
        watch = _Watch()
        declared = to_arrow(self.schema)
        tables: list[pa.Table] = []
        reached: int | None = None
        for path in paths:
            table = read_as_declared(path, declared, self.read, self.time_column)
            if table is None:
                yield self._line(LEFT, ChunkInfo(path, 0, 0, None, None))
                continue
            if self.time_column is not None and table.num_rows:
                last = pc.max(table.column(self.time_column)).cast(pa.int64()).as_py()
                reached = last if reached is None else max(reached, last)
            tables.append(self._wanted(table))
        watch.waited()
        if any(table.num_rows for table in tables):
            yield self._good(pa.concat_tables(tables), watch)
        if reached is not None and self.passes_by is not None:
            yield self._line(PASSED, ChunkInfo("", 0, 0, None, reached))

    @property
    def passes_by(self) -> str | None:
        """The timestamp column that counts also on rows which nobody wants: it decides what is late."""
        return self.time_column if self.need.condition is not None else None

    def _wanted(self, table: pa.Table) -> pa.Table:
        """The rows that some query wants, or all of a file that has few others: a query looks for itself."""
        if self.need.condition is None:
            return table
        condition = _compiled(self.need.condition, self.schema)
        if table.num_rows > _MANY:
            sample = table.slice(0, _SAMPLED)
            if 2 * filter_table(sample, condition).num_rows > sample.num_rows:
                return table
        return filter_table(table, condition)

    def _good(self, table: pa.Table, watch: _Watch) -> pa.RecordBatch:
        columns = to_arrow(self.schema)
        read = pa.schema([columns.field(name) for name in self.read])
        timed = packed(table.select(read.names).cast(read), self.time_column)
        stored = timed.select([*([TS] if self.time_column is not None else []), *self.stored])
        return self._line(GOOD, write_chunk(self.folder, CHUNKS, stored), *watch.seconds())

    def _line(
        self, kind: str, chunk: ChunkInfo, waited_s: float = 0.0, packed_s: float = 0.0
    ) -> pa.RecordBatch:
        described: tuple[Any, ...] = (self.stream, kind, chunk.path, chunk.rows, chunk.bytes)
        values = (*described, chunk.min_ts, chunk.max_ts, waited_s, packed_s)
        return pa.record_batch([pa.array([v], t) for v, t in zip(values, _TYPES, strict=True)], _NAMES)


@dataclass(slots=True)
class _Watch:
    """How long a task waited for its rows, or read them, and how long it took to pack them."""

    began: float = field(default_factory=time.perf_counter)
    got: float = 0.0

    def waited(self) -> None:
        self.got = time.perf_counter()

    def seconds(self) -> tuple[float, float]:
        return self.got - self.began, time.perf_counter() - self.got

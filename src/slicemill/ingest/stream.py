"""Reading of a declared stream in a worker: readers, intake, and columns to store.

The *intake* numbers rows, detects late rows, and sorts the other rows by time.

reader ──► rows that queries need ──► intake: number, detect late, sort ──► rows, late, held, errors
           (other rows only advance the watermark)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.catalog.catalog import Stream, TimestampKind
from slicemill.columns.arrow_schema import to_arrow, with_default_columns, with_system_columns
from slicemill.functions.evaluate import compile_vector
from slicemill.ingest.intake import ONLY, Admitted, BatchTimestamps, Intake
from slicemill.ingest.reader import OpenReaders, SourceBatch, SourceReader
from slicemill.ingest.watermarks import PARTITIONS
from slicemill.plan.partitioning import Exchange
from slicemill.plan.projection_pushdown import SourceProjection
from slicemill.storage.segments import Extent, read_extent
from slicemill.time import BEGINNING, wall_clock_us

# Progress field of a stream that skips rows that arrived before the first read (BEGIN LATEST).
SKIPPING = "skipping"
# Sizes of a sample of a batch, and of a batch that is sampled.
# Evaluating the conditions of many queries may cost more than storing all rows, so the conditions are
# evaluated for all rows only if they drop enough sampled rows.
_SAMPLED, _MANY = 2_000, 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Plan for reading a stream, which the driver sends to a worker."""

    stream: Stream
    need: SourceProjection
    folder: Path  # base folder of relative source paths
    logs: Mapping[str, Path]  # folders of the logs of rows, errors, late rows and held-back rows
    spool: Path
    handed: bool  # True if the driver passes the rows, which come from Spark or a program
    columns: pa.Schema  # columns of the stream's log, some with a default for older rows
    exchanges: tuple[Exchange, ...] = ()  # shuffles of the tasks that read the stream
    skips_past: bool = False  # True to skip rows that arrived before the first read (BEGIN LATEST)

    @property
    def external(self) -> bool:
        return self.stream.kind is TimestampKind.EXTERNAL

    @property
    def stored(self) -> list[str]:
        """Return the names of the columns to store.

        There is at least one column, because a table without columns would lose its number of rows.
        """
        needed = [name for name in self.stream.schema.names if name in self.need.columns]
        return needed or [self.stream.time_column or self.stream.schema.names[0]]

    @property
    def read(self) -> list[str]:
        """Return the names of the columns to read.

        These are the stored columns, the timestamp, and the columns of the filter condition.
        """
        wanted = {*self.stored, self.stream.time_column, *self.need.read}
        return [name for name in self.stream.source_schema.names if name in wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedRows:
    """Rows that the driver passes to a worker, and their offset.

    With these rows, the driver has passed all rows that had arrived by `seen_us`. `order` names the columns
    that restore the arrival order of rows of several Spark partitions. If the columns are missing, the rows
    are sorted by time.
    """

    folder: Path
    rows: tuple[Extent, ...]
    errors: tuple[Extent, ...]
    offset: Any
    arrival_us: int
    seen_us: int
    order: tuple[str, ...] = ()


class Announced(NamedTuple):
    """Watermarks that tasks have received: of a stream's rows, and of late and bad rows."""

    rows: int = BEGINNING
    sides: int = BEGINNING


@dataclass(slots=True, kw_only=True)
class StreamRead:
    """Result of one read of a stream."""

    admitted: list[Admitted]
    offsets: dict[str, Any]
    rows: int = 0
    unneeded: int = 0  # number of rows that are not stored, because no query needs them
    more: bool = False
    again_us: int | None = None
    ended: bool = False
    skipping: bool = False  # True if the rows were skipped, and more rows must be skipped
    warning: str | None = None


class OpenStream:
    """Declared stream that a worker reads.

    `progress` has the journal fields of the stream, and `held` its held-back rows. Each read sets `now_us`:
    the time of the engine, if this is not the wall clock.
    """

    def __init__(
        self,
        plan: StreamPlan,
        progress: Mapping[str, Any],
        held: tuple[Extent, ...],
        open_readers: OpenReaders,
        notify: Callable[[], None],
        now_us: int | None,
    ) -> None:
        self.plan = plan
        self._open_readers = open_readers
        self._notify = notify
        self._now_us = now_us
        self._readers = self._open()
        self._intake = Intake(plan.stream, progress, tuple(self._readers) or (ONLY,))
        if plan.external:
            empty = to_arrow(plan.stream.schema)
            tables = [with_default_columns(read_extent(plan.logs["held"], e), plan.columns) for e in held]
            self._intake.restore(_concatenate(tables, empty))
        self._wanted = _condition(plan)
        self._skipping = plan.skips_past and (SKIPPING in progress or not progress.get(PARTITIONS))

    def replan(self, plan: StreamPlan) -> None:
        """Change the columns to read and store, without a change of the intake."""
        before, self.plan = self.plan, plan
        self._wanted = _condition(plan)
        if before.read != plan.read:
            self.close()
            self._readers = self._open()

    def close(self) -> None:
        for reader in self._readers.values():
            reader.close()

    def _open(self) -> Mapping[str, SourceReader]:
        plan = self.plan
        if plan.handed:
            return {}
        found = self._open_readers(plan.stream, plan.read, plan.folder, plan.spool, self._notify, self.clock)
        assert found is not None, "the driver hands over what no reader of ours can read"
        return found

    def clock(self) -> int:
        return wall_clock_us() if self._now_us is None else self._now_us

    def commit(self, offsets: Mapping[str, Any]) -> None:
        """Notify the readers that rows before these offsets have been committed."""
        for partition, offset in offsets.items():
            if partition in self._readers:
                self._readers[partition].commit(offset)

    def read(
        self, offsets: Mapping[str, Any], announced: Announced, limit_rows: int, now_us: int | None
    ) -> StreamRead:
        """Read each partition of the source from its offset on."""
        self._now_us = now_us
        found = StreamRead(admitted=[], offsets=dict(offsets), ended=bool(self._readers))
        skipping = self._skipping
        for partition, reader in self._readers.items():
            began_us = self.clock()
            batch = reader.read(offsets.get(partition), limit_rows)
            if skipping:
                batch = replace(batch, table=None, errors=None)
            self._take(partition, batch, announced, began_us, found)
        self._skipping = found.skipping = skipping and found.more
        if found.ended:
            found.admitted.append(self._intake.flush(self.clock()))
        return found

    def take(self, handed: HandedRows, announced: Announced) -> StreamRead:
        """Process rows that the driver passes."""
        found = StreamRead(admitted=[], offsets={})
        self._take(ONLY, self._batch(handed, more=False), announced, handed.seen_us, found)
        return found

    def replay(self, handed: HandedRows, announced: Announced) -> StreamRead:
        """Process bad rows that were parsed again, without reading the source.

        The rows are admitted as rows of the first partition. The source may have more rows.
        """
        found = StreamRead(admitted=[], offsets={})
        partition = next(iter(self._readers), ONLY)
        self._take(partition, self._batch(handed, more=True), announced, handed.seen_us, found)
        return StreamRead(
            admitted=found.admitted,
            offsets={},
            rows=found.rows,
            unneeded=found.unneeded,
            again_us=0 if self._readers else None,
        )

    def _batch(self, handed: HandedRows, *, more: bool) -> SourceBatch:
        rows = [read_extent(handed.folder, extent) for extent in handed.rows]
        errors = [read_extent(handed.folder, extent) for extent in handed.errors]
        table = self._as_declared(self._as_arrived(pa.concat_tables(rows), handed.order)) if rows else None
        bad = pa.concat_tables(errors) if errors else None
        return SourceBatch(table, bad, handed.offset, handed.arrival_us, more=more, again_us=None)

    def flush(self, now_us: int | None) -> StreamRead:
        """Emit all held-back rows at the end of the stream."""
        self._now_us = now_us
        return StreamRead(admitted=[self._intake.flush(self.clock())], offsets={}, ended=True)

    def _take(
        self, partition: str, batch: SourceBatch, announced: Announced, seen_us: int, found: StreamRead
    ) -> None:
        rows, passed = batch.table, None
        if rows is not None and rows.num_rows:
            found.rows += rows.num_rows
            rows = self._stamped(rows, batch, announced)
            rows, passed = self._needed(rows)
            found.unneeded += len(passed.wanted) - rows.num_rows
        found.admitted.append(
            self._intake.admit(
                partition,
                rows,
                batch.arrival_us,
                announced.rows,
                seen_us,
                passed=passed,
                errors=batch.errors,
                more=batch.more,
                ended=batch.ended,
                side_watermark=announced.sides,
            )
        )
        found.offsets[partition] = batch.offset
        found.more |= batch.more
        found.ended &= batch.ended
        found.warning = batch.warning or found.warning
        if batch.again_us is not None:
            found.again_us = batch.again_us if found.again_us is None else min(found.again_us, batch.again_us)

    def _stamped(self, rows: pa.Table, batch: SourceBatch, announced: Announced) -> pa.Table:
        """Add the timestamp column to rows of a stream that gets its timestamps on arrival."""
        name = self.plan.stream.stamp_column
        if name is None:
            return rows
        stamps = self._intake.stamps(rows.num_rows, batch.arrival_us, announced.rows)
        field = to_arrow(self.plan.stream.schema).field(name)
        return rows.append_column(field, pa.array(stamps).cast(field.type))

    def _needed(self, table: pa.Table) -> tuple[pa.Table, BatchTimestamps]:
        """Drop rows that no query needs, if there are enough such rows.

        Otherwise all rows are stored, and queries apply their conditions.
        """
        wanted = np.ones(table.num_rows, np.bool_)
        if self._wanted is not None and not self._wants_most(table):
            wanted = _true(self._wanted(table))
        times = np.zeros(table.num_rows, np.int64)
        if self.plan.external:
            times = table.column(self.plan.stream.time_column).cast(pa.int64()).to_numpy()
        if self.plan.stream.oldest_us is not None:
            wanted = wanted & (times >= self.plan.stream.oldest_us)
        stored = table.select(self.plan.stored)
        return stored if wanted.all() else stored.filter(pa.array(wanted)), BatchTimestamps(times, wanted)

    def _wants_most(self, table: pa.Table) -> bool:
        assert self._wanted is not None
        if table.num_rows <= _MANY:
            return False
        return 2 * int(_true(self._wanted(table.slice(0, _SAMPLED))).sum()) > _SAMPLED

    def _as_arrived(self, table: pa.Table, order: tuple[str, ...]) -> pa.Table:
        # The sort is stable, so that rows of one Spark task keep the order in which the task wrote them.
        if order and set(order) <= set(table.column_names):
            return table.sort_by([(name, "ascending") for name in order])
        return table.sort_by(str(self.plan.stream.time_column)) if order and self.plan.external else table

    def _as_declared(self, table: pa.Table) -> pa.Table:
        declared = to_arrow(self.plan.stream.schema)
        read = [name for name in self.plan.read if name in table.column_names]
        return table.select(read).cast(pa.schema([declared.field(name) for name in read]))


def _condition(plan: StreamPlan) -> Callable[[pa.Table], pa.ChunkedArray] | None:
    condition = plan.need.condition
    return None if condition is None else compile_vector(condition, plan.stream.schema)


def _true(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = column.fill_null(False).to_numpy()
    return found


def _concatenate(tables: list[pa.Table], columns: pa.Schema) -> pa.Table:
    if not tables:
        return with_system_columns(columns).empty_table()
    return pa.concat_tables(tables, promote_options="default")

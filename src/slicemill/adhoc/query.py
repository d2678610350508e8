"""Ad hoc queries: SQL over the current rows, executed by DuckDB.

A query may read tables, views, streams and continuous queries. For a stream or continuous query it reads the
retained rows with their timestamp in `_ts`, and only the required columns and epochs. DuckDB has access to
Arrow tables only, and not to files, network or settings. A server runs DuckDB in separate
processes (`server.adhoc`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
import sqlglot
from sqlglot import exp

from slicemill.adhoc.errors import OutOfMemory, UnknownName, duckdb_error, no_such_relation
from slicemill.adhoc.postgres_catalog import (
    is_system_catalog_query,
    may_be_catalog_query,
    postgres_tree,
)
from slicemill.adhoc.pushdown import (
    Limit,
    LimitOrder,
    RelationPushdown,
    is_system,
    parse_query,
    pushdowns_of,
)
from slicemill.columns.arrow_schema import as_results, is_system_column, with_system_columns
from slicemill.errors import SlicemillError
from slicemill.kernels.arrays import Int64s
from slicemill.storage.log import Epoch, EpochSpans
from slicemill.storage.segments import ExtentFreed

_BATCH_ROWS = 8_192
# Size in bytes of the first rows of an answer, which determine its column types.
# A smaller answer is read completely first.
_DECIDED_BYTES = 1 << 20
# Approximate size in bytes of a batch that is sent to a client.
_PIECE_BYTES = 1 << 20
_TIME, _UTC, _HUGE = pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(38, 0)


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Resource limits of one process: memory for DuckDB, and threads."""

    memory_bytes: int = 1 << 30
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Rows of an answer: the first rows as a table, then batches that are computed on demand."""

    first: pa.Table
    rest: Iterator[pa.RecordBatch]


@contextmanager
def run_adhoc_query(
    sql: str,
    relation_of: Callable[[str], QueryableRelation],
    parameters: Sequence[object] = (),
    limits: ProcessLimits = ProcessLimits(),  # noqa: B008
) -> Iterator[Answer]:
    """Execute an ad hoc query. `relation_of` returns a relation by name, or raises UnknownName.

    `parameters` are the values of $1, $2, … The rows can be read only while the context is open.
    """
    needs = pushdowns_of(parse_query(sql), parameters)
    relations: dict[str, QueryableRelation] = {}
    for name in needs:
        try:
            relations[name] = relation_of(name)
        except UnknownName as problem:
            raise no_such_relation(sql, name, problem) from None
    connection = open_connection(limits)
    try:
        for name, relation in relations.items():
            connection.register(name, _without_zones(relation.shape()))
        # In a transaction, now() returns the same time for all rows.
        connection.begin()
        adhoc_query = _DuckDBQuery(connection, sql, parameters)
        if relations:
            # The errors of the query are reported before any rows are read.
            adhoc_query.check()
        for name, relation in relations.items():
            rows = relation.read(needs[name], _bounds(adhoc_query, name, needs[name]))
            connection.register(name, _without_zones(rows))
        yield _to_engine_types(adhoc_query.batches())
    except duckdb.OutOfMemoryException:
        raise OutOfMemory(limits.memory_bytes) from None
    except duckdb.Error as problem:
        raise duckdb_error(sql, problem) from None
    finally:
        connection.close()


def open_connection(
    limits: ProcessLimits = ProcessLimits(),  # noqa: B008
) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB database that cannot access files, the network or settings."""
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "memory_limit": f"{limits.memory_bytes}B",
            "threads": str(limits.threads),
            "temp_directory": "",
        }
    )
    connection.execute("SET TimeZone = 'UTC'")  # all times are shown in UTC
    connection.execute("SET errors_as_json = true")  # JSON errors include positions
    connection.execute("SET lock_configuration = true")
    return connection


@dataclass(frozen=True, slots=True)
class _DuckDBQuery:
    """Ad hoc query on a DuckDB connection, of which parts can be evaluated separately."""

    connection: duckdb.DuckDBPyConnection
    sql: str
    parameters: Sequence[object]

    def check(self) -> None:
        """Raise the errors that DuckDB can find before it reads any rows."""
        values = list(self.parameters) or None
        try:
            self.connection.execute(f"EXPLAIN {self.sql}", values)
        except duckdb.Error:
            self.batches()
            raise

    def batches(self) -> pa.RecordBatchReader:
        """Start the execution of the query. Rows are computed when they are read."""
        values = list(self.parameters) or None
        try:
            return self.connection.sql(self.sql, params=values).to_arrow_reader(_BATCH_ROWS)
        except (duckdb.BinderException, duckdb.CatalogException):
            # This second execution fails as well, and its error has the position in the text.
            self.connection.execute(self.sql, values)
            raise

    def value(self, bound: exp.Expr) -> int | None:
        """Return a time bound in microseconds, or None if the expression is not a timestamp.

        An expression of another type raises an error when the query itself is executed.
        """
        found = self.part(exp.select(exp.cast(exp.paren(bound.copy()), "TIMESTAMP")))
        value: int | None = None if found is None else found.column(0).cast(pa.int64())[0].as_py()
        return value

    def part(self, select: exp.Select) -> pa.Table | None:
        """Evaluate a SELECT made from a part of the query. Return None if DuckDB cannot evaluate it alone."""
        own = select.copy()
        values: list[object] = []
        for index in list(own.find_all(exp.Placeholder)):
            if not index.name.isdigit() or int(index.name) > len(self.parameters):
                return None
            values.append(self.parameters[int(index.name) - 1])
            index.replace(exp.Placeholder(this=str(len(values))))
        try:
            return self.connection.sql(own.sql("duckdb"), params=values or None).to_arrow_table()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Time bounds of one relation in an ad hoc query (implements `Bounds`)."""

    adhoc_query: _DuckDBQuery
    name: str
    first_us: int | None
    last_us: int | None

    def probe(self, rows: pa.Table, limit: Limit) -> list[int] | None:
        self.adhoc_query.connection.register(self.name, _without_zones(rows))
        found = self.adhoc_query.part(limit.probe)
        if found is None:
            return None
        times: list[int] = found.column(0).cast(pa.int64()).to_pylist()
        if limit.wanted is not LimitOrder.ANY:
            times.sort(reverse=limit.wanted is LimitOrder.NEWEST)
        return times[: limit.rows]


def _bounds(adhoc_query: _DuckDBQuery, name: str, need: RelationPushdown) -> Callable[[], _Bounds]:
    def found() -> _Bounds:
        firsts = [value for bound in need.first if (value := adhoc_query.value(bound)) is not None]
        lasts = [value for bound in need.last if (value := adhoc_query.value(bound)) is not None]
        return _Bounds(adhoc_query, name, max(firsts, default=None), min(lasts, default=None))

    return found


def reads_system_tables(sql: str) -> bool:
    """Return True if a query reads PostgreSQL's system catalog."""
    if not may_be_catalog_query(sql):
        return False
    try:
        tree = postgres_tree(sql)
    except sqlglot.errors.SqlglotError:
        return False
    return is_system_catalog_query(tree) or any(is_system(table) for table in tree.find_all(exp.Table))


def _without_zones(table: pa.Table) -> pa.Table:
    """Remove time zones from the column types of a table, because all times are UTC.

    Time zones would require DuckDB's calendar extension.
    """
    return _cast_types(table, lambda kind: _TIME if pa.types.is_timestamp(kind) else kind)


def _to_engine_types(batches: pa.RecordBatchReader) -> Answer:
    """Convert timestamps to UTC, and 128-bit integers to BIGINT if they fit.

    DuckDB returns sums as 128-bit integers. The first rows decide whether the integers fit.
    """
    begun: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        begun.append(batch)
        size += batch.nbytes
        if size > _DECIDED_BYTES:
            break
    first = _cast_types(pa.Table.from_batches(begun, batches.schema), _client_type)
    with suppress(pa.ArrowInvalid):
        first = _cast_types(first, lambda kind: pa.int64() if kind == _HUGE else kind)
    return Answer(first, _cast_batches(batches, first.schema))


def _cast_batches(batches: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        shown = _cast_types(pa.Table.from_batches([batch]), _client_type)
        try:
            yield from shown.cast(schema).to_batches()
        except pa.ArrowInvalid as problem:
            raise SlicemillError(
                f"a whole number does not fit in 64 bits, as the first ones did: {problem}; "
                "CAST the column to DECIMAL(38, 0) or DOUBLE"
            ) from None


def split_batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a table in batches of limited size."""
    for batch in table.to_batches(max_chunksize=_BATCH_ROWS):
        rows = max(1, batch.num_rows * _PIECE_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _client_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return _UTC
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _cast_types(table: pa.Table, kind_of: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    return table.cast(pa.schema([field.with_type(kind_of(field.type)) for field in table.schema]))


# Ad hoc queries read relations with push-down of the time range and of LIMIT.
#
# The index of a log has the smallest and largest timestamp of each epoch (the rows of one commit).
# Epochs outside of the time bounds of a query are not read.
# If a query has a LIMIT, only as many epochs are read as the LIMIT needs, for example:
#
#     epochs by their last timestamp     …  e7  e9  e8
#     SELECT … ORDER BY _ts DESC LIMIT 10:          e8 has 4 rows that pass WHERE; e8 and e9 have 12.
#                                                   The tenth is at time t. Epochs that end before t
#                                                   are not needed.


# Number of rows that the first probe for a LIMIT reads. Each further probe reads _MORE times as many rows.
_FIRST_ROWS = 4_096
_MORE = 4
_TRIES = 3


class Bounds(Protocol):
    """Time bounds of a relation in an ad hoc query, as microseconds."""

    @property
    def first_us(self) -> int | None: ...
    @property
    def last_us(self) -> int | None: ...

    def probe(self, rows: pa.Table, limit: Limit) -> list[int] | None:
        """Return the timestamps of the rows that a LIMIT selects, in the order of the LIMIT.

        Return None if DuckDB cannot evaluate the selection.
        """


class QueryableLog(Protocol):
    """Part of the interface of `storage.log.Log` that ad hoc queries use."""

    @property
    def columns_shown(self) -> pa.Schema: ...
    def spans(self) -> EpochSpans: ...
    def epochs(self, after: int, upto: int) -> list[Epoch]: ...
    def scan(self, epochs: Iterable[Epoch], columns: Collection[str]) -> pa.Table: ...


class QueryableRelation(Protocol):
    """Relation that an ad hoc query can read."""

    def shape(self) -> pa.Table:
        """Return the columns of the relation as a table without rows."""

    def read(self, need: RelationPushdown, bounds: Callable[[], Bounds], /) -> pa.Table:
        """Return at least the rows that the query needs."""


@dataclass(frozen=True, slots=True)
class InMemoryRelation:
    """Relation whose rows are all in memory: a table or a view."""

    columns: pa.Schema
    rows: Callable[[], pa.Table]

    def shape(self) -> pa.Table:
        return self.columns.empty_table()

    def read(self, need: RelationPushdown, _: Callable[[], Bounds], /) -> pa.Table:
        return _prune_columns(self.rows(), need)


@dataclass(frozen=True, slots=True)
class LogRelation:
    """Retained rows of a stream or continuous query, after epoch (commit) `after`."""

    log: QueryableLog
    after: int = -1

    def shape(self) -> pa.Table:
        return as_results(with_system_columns(self.log.columns_shown).empty_table())

    def read(self, need: RelationPushdown, bounds: Callable[[], Bounds], /) -> pa.Table:
        if not need.rows:
            return self.shape()
        for _ in range(_TRIES - 1):
            # The read is repeated if retention frees rows while they are read.
            with suppress(ExtentFreed):
                return self._read_needed(need, bounds)
        return self._read_needed(need, bounds)

    def _read_needed(self, need: RelationPushdown, bounds: Callable[[], Bounds]) -> pa.Table:
        spans = self.log.spans()
        indices = np.flatnonzero(spans.numbers > self.after)
        if need.first or need.last:
            known = bounds()
            if known.first_us is not None:
                indices = indices[spans.last_ts[indices] >= known.first_us]
            if known.last_us is not None:
                indices = indices[spans.first_ts[indices] <= known.last_us]
        if need.limit is not None:
            indices = self._epochs_for_limit(spans, indices, need, bounds())
        return self._read(spans, indices, need)

    def _epochs_for_limit(
        self, spans: EpochSpans, indices: Int64s, need: RelationPushdown, bounds: Bounds
    ) -> Int64s:
        """Return the indexes of the epochs (commits) with all rows that a LIMIT selects, including ties."""
        assert need.limit is not None, "the query has a LIMIT"
        wanted = need.limit.wanted
        ends = spans.last_ts if wanted is LimitOrder.NEWEST else spans.first_ts
        by_time = np.argsort(-ends[indices] if wanted is LimitOrder.NEWEST else ends[indices], kind="stable")
        order = indices if wanted is LimitOrder.ANY else indices[by_time]
        rows = np.cumsum(spans.rows[order])
        look = max(_FIRST_ROWS, need.limit.rows)
        while True:
            upto = int(np.searchsorted(rows, look)) + 1
            if upto >= len(order):
                return indices
            found = bounds.probe(self._read(spans, np.sort(order[:upto]), need), need.limit)
            if found is None:
                return indices
            if len(found) >= need.limit.rows:
                break
            look = _MORE * int(rows[upto - 1])
        if wanted is LimitOrder.ANY or not found:
            return np.sort(order[:upto])
        last = found[-1]
        inside = ends[indices] >= last if wanted is LimitOrder.NEWEST else ends[indices] <= last
        return indices[inside]

    def _read(self, spans: EpochSpans, indices: Int64s, need: RelationPushdown) -> pa.Table:
        if not len(indices):
            return _prune_columns(self.shape(), need)
        numbers = spans.numbers[indices]
        chosen = set(numbers.tolist())
        epochs = self.log.epochs(after=int(numbers[0]) - 1, upto=int(numbers[-1]))
        names = [name for name in self.log.columns_shown.names if need.requires_column(name)]
        return as_results(self.log.scan((e for e in epochs if e.number in chosen), names))


def _prune_columns(table: pa.Table, need: RelationPushdown) -> pa.Table:
    if not need.rows:
        table = table.slice(0, 0)
    wanted = [name for name in table.column_names if is_system_column(name) or need.requires_column(name)]
    # At least one column stays, because a table without columns has no row count.
    return table.select(wanted or table.column_names[:1])

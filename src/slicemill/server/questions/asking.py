"""Ad hoc questions: SQL over what is there now, answered at once by DuckDB (M40).

A question may name tables, views, streams and queries. Of a stream or a query it sees the rows that are
retained, with their timestamp in `_ts`; what it does not need of them is not read. DuckDB gets Arrow tables
and nothing else: no files, no network, no settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from slicemill.server.questions.errors import UnknownName, refused, unknown_in
from slicemill.server.questions.needs import Limit, RelationNeed, Wanted, is_system, needs_of, parsed
from slicemill.server.questions.rows import AskedRelation

_MEMORY = "1GB"
_TIME, _UTC, _HUGE = pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(38, 0)


def ask(
    sql: str,
    relation_of: Callable[[str], AskedRelation],
    interrupted: threading.Event | None = None,
    parameters: Sequence[object] = (),
) -> pa.Table:
    """The answer to a question; `relation_of` gives a relation by its name, or raises if there is none.

    `parameters` are for $1, $2, … in it. Who sets `interrupted` from another thread ends it.
    """
    needs = needs_of(parsed(sql), parameters)
    relations: dict[str, AskedRelation] = {}
    for name in needs:
        try:
            relations[name] = relation_of(name)
        except UnknownName as problem:
            raise unknown_in(sql, name, problem) from None
    connection = connected()
    try:
        shapes = {name: relation.shape() for name, relation in relations.items()}
        for name, rows in shapes.items():
            connection.register(name, _without_zones(rows))
        done = threading.Event()
        if interrupted is not None:
            _interrupt_when(interrupted, done, connection)
        try:
            connection.begin()  # in which it is one time for all
            question = _Question(connection, sql, parameters)
            question.answer()  # a mistake is told before anything is read
            for name, relation in relations.items():
                rows = relation.read(needs[name], _bounds(question, name, needs[name]))
                connection.register(name, _without_zones(rows))
            answer = question.answer()
        finally:
            done.set()
        return _in_our_types(answer)
    except duckdb.Error as problem:
        raise refused(sql, problem) from None
    finally:
        connection.close()


def connected() -> duckdb.DuckDBPyConnection:
    """A database in memory that reaches nothing outside of it."""
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "memory_limit": _MEMORY,
        }
    )
    connection.execute("SET TimeZone = 'UTC'")  # as all times here are
    connection.execute("SET errors_as_json = true")  # which has their places
    connection.execute("SET lock_configuration = true")
    return connection


@dataclass(frozen=True, slots=True)
class _Question:
    """A question at a connection, and what it says of some of its rows."""

    connection: duckdb.DuckDBPyConnection
    sql: str
    parameters: Sequence[object]

    def answer(self) -> pa.Table:
        values = list(self.parameters) or None
        try:
            return self.connection.sql(self.sql, params=values).to_arrow_table()
        except (duckdb.BinderException, duckdb.CatalogException):
            self.connection.execute(self.sql, values)  # which fails as well, and tells the place
            raise

    def value(self, bound: exp.Expr) -> int | None:
        """A bound in microseconds; None if it is no time, which the question itself will tell."""
        found = self.part(exp.select(exp.cast(exp.paren(bound.copy()), "TIMESTAMP")))
        value: int | None = None if found is None else found.column(0).cast(pa.int64())[0].as_py()
        return value

    def part(self, select: exp.Select) -> pa.Table | None:
        """The answer to a part of the question; None where DuckDB does not understand it so."""
        own = select.copy()
        values: list[object] = []
        for place in list(own.find_all(exp.Placeholder)):
            if not place.name.isdigit() or int(place.name) > len(self.parameters):
                return None
            values.append(self.parameters[int(place.name) - 1])
            place.replace(exp.Placeholder(this=str(len(values))))
        try:
            return self.connection.sql(own.sql("duckdb"), params=values or None).to_arrow_table()
        except duckdb.InterruptException:
            raise
        except duckdb.Error:
            return None


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a question says of the rows of one relation, as `rows.Bounds` asks for it."""

    question: _Question
    name: str
    first_us: int | None
    last_us: int | None

    def probe(self, rows: pa.Table, limit: Limit) -> list[int] | None:
        self.question.connection.register(self.name, _without_zones(rows))
        found = self.question.part(limit.probe)
        if found is None:
            return None
        times: list[int] = found.column(0).cast(pa.int64()).to_pylist()
        if limit.wanted is not Wanted.ANY:
            times.sort(reverse=limit.wanted is Wanted.NEWEST)
        return times[: limit.rows]


def _bounds(question: _Question, name: str, need: RelationNeed) -> Callable[[], _Bounds]:
    def found() -> _Bounds:
        firsts = [value for bound in need.first if (value := question.value(bound)) is not None]
        lasts = [value for bound in need.last if (value := question.value(bound)) is not None]
        return _Bounds(question, name, max(firsts, default=None), min(lasts, default=None))

    return found


def reads_system_tables(sql: str) -> bool:
    """Is it a question about the catalog, by the tables and functions that PostgreSQL has for it?"""
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except sqlglot.errors.SqlglotError:
        return False
    calls = (call for call in tree.find_all(exp.Anonymous) if call.name.lower().startswith("pg_"))
    return next(calls, None) is not None or any(is_system(table) for table in tree.find_all(exp.Table))


def _interrupt_when(
    wanted: threading.Event, done: threading.Event, connection: duckdb.DuckDBPyConnection
) -> None:
    def watch() -> None:
        while not done.wait(0.05):
            if wanted.is_set():
                connection.interrupt()
                return

    threading.Thread(target=watch, name="question", daemon=True).start()


def _without_zones(table: pa.Table) -> pa.Table:
    """Times as DuckDB can compute with them without its calendar extension; all of them are UTC."""
    return _retyped(table, lambda kind: _TIME if pa.types.is_timestamp(kind) else kind)


def _in_our_types(table: pa.Table) -> pa.Table:
    """Times in UTC, and sums of integers, for which DuckDB has 128 bits, as integers where they fit."""
    shown = _retyped(table, lambda kind: _UTC if pa.types.is_timestamp(kind) else kind)
    try:
        return _retyped(shown, lambda kind: pa.int64() if kind == _HUGE else kind)
    except pa.ArrowInvalid:
        return shown


def _retyped(table: pa.Table, kind_of: Callable[[pa.DataType], pa.DataType]) -> pa.Table:
    return table.cast(pa.schema([field.with_type(kind_of(field.type)) for field in table.schema]))

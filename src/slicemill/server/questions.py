"""Ad hoc questions: SQL over what is there now, answered at once by DuckDB (M40).

A question may name tables, views, streams and queries. Of a stream or a query it sees the rows that are
retained, with their timestamp in `_ts`. DuckDB gets them as Arrow tables and nothing else: no files, no
network, no settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp

from slicemill.errors import SlicemillError

_MEMORY = "1GB"
_TIME, _UTC, _HUGE = pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.decimal128(38, 0)


def ask(
    sql: str,
    rows_of: Callable[[str], pa.Table],
    interrupted: threading.Event | None = None,
    parameters: Sequence[object] = (),
    listed: Mapping[str, pa.Table] | None = None,
) -> pa.Table:
    """The answer to a question; `rows_of` gives the rows of a relation, or raises if there is none.

    `parameters` are for $1, $2, … in it; `listed` is what its catalog lists besides. Who sets `interrupted`
    from another thread ends it.
    """
    connection = duckdb.connect(
        config={
            "enable_external_access": "false",
            "python_enable_replacements": "false",
            "memory_limit": _MEMORY,
        }
    )
    try:
        connection.execute("SET lock_configuration = true")
        named = {name: rows_of(name) for name in relations_named(sql)}
        for name, rows in {**(listed or {}), **named}.items():
            connection.register(name, _without_zones(rows))
        done = threading.Event()
        if interrupted is not None:
            _interrupt_when(interrupted, done, connection)
        try:
            return _in_our_types(connection.sql(sql, params=list(parameters) or None).to_arrow_table())
        finally:
            done.set()
    except duckdb.Error as problem:
        raise SlicemillError(_first_lines(problem)) from None
    finally:
        connection.close()


def relations_named(sql: str) -> list[str]:
    """The names in FROM that the question does not define itself.

    >>> relations_named("WITH top AS (SELECT * FROM hot) SELECT * FROM top JOIN item USING (id)")
    ['hot', 'item']
    """
    try:
        statements = sqlglot.parse(sql, read="duckdb")
    except sqlglot.errors.SqlglotError as problem:
        raise SlicemillError(f"this question cannot be read: {_first_lines(problem)}") from None
    trees = [tree for tree in statements if tree is not None]
    if len(trees) != 1 or not isinstance(trees[0], exp.Query):
        raise SlicemillError("a question is one SELECT")
    own = {cte.alias.lower() for cte in trees[0].find_all(exp.CTE)}
    tables = (table for table in trees[0].find_all(exp.Table) if isinstance(table.this, exp.Identifier))
    names = (table.name for table in tables if not _is_system(table))
    return sorted({name for name in names if name.lower() not in own})


def reads_system_tables(sql: str) -> bool:
    """Is it a question about the catalog, by the tables that PostgreSQL has for it?"""
    try:
        tree = sqlglot.parse_one(sql, read="postgres")
    except sqlglot.errors.SqlglotError:
        return False
    return any(_is_system(table) for table in tree.find_all(exp.Table))


def _is_system(table: exp.Table) -> bool:
    return table.db.lower() in ("pg_catalog", "information_schema") or table.name.lower().startswith("pg_")


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


def _first_lines(problem: Exception) -> str:
    return "\n".join(str(problem).splitlines()[:4])

"""`postgres://user@host:port/database?table=t`: exactly-once Postgres sink.

Rows and cursor are written in one transaction. For a changelog, the table has the current rows, identified by
their key. With `changelog=true`, the table has all changes.

The sink creates two tables if they are missing. The target table (named by the query or by `table=`) has
`_ts` and the columns of the query. Names are quoted, so they keep their case. `slicemill_cursors` has one row
per query, with the last delivered epoch (commit of slicemill) and the home directory. Delivery continues
after this epoch, and not at the cursor in the home directory. So delivery is also correct after a connection
broke during a commit, or after a backup was restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, quote, urlencode

import pyarrow as pa

from slicemill.columns.arrow_schema import TS
from slicemill.columns.changelog import table_of_now
from slicemill.columns.rows import column_values
from slicemill.connectors.sinks.sink import SinkError
from slicemill.secrets import redact_address, resolve_secrets
from slicemill.types import TIMESTAMP, Column, Kind, Schema, Type

if TYPE_CHECKING:
    from psycopg import Connection, Cursor
    from psycopg.sql import Composable, Identifier

CURSORS = "slicemill_cursors"
TOUCHED = "slicemill_touched"

_CONNECT_TIMEOUT_S = 10
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INT: "integer",
    Kind.BIGINT: "bigint",
    Kind.DOUBLE: "double precision",
    Kind.VARCHAR: "text",
    Kind.BINARY: "bytea",
    Kind.TIMESTAMP: "timestamptz",
    Kind.DATE: "date",
    Kind.INTERVAL: "interval",
    Kind.MONTHS: "interval",
    Kind.PERIOD: "tstzrange",
    Kind.CHANGE: "text",
    Kind.NULL: "text",
}


def postgres_type(type_: Type) -> str:
    """Return a Postgres type that can store all values of a column type of slicemill.

    >>> from slicemill.types import INT, decimal
    >>> postgres_type(INT), postgres_type(decimal(10, 2))
    ('integer', 'numeric(10, 2)')
    """
    if type_.kind is Kind.DECIMAL:
        return f"numeric({type_.precision}, {type_.scale})"
    if type_.element is not None:
        return f"{postgres_type(type_.element)}[]"
    return _TYPES[type_.kind]


def split_table(url: str) -> tuple[str, str | None]:
    """Split the URL of a sink into the URL for the driver and the option `table=`.

    >>> split_table("postgres://ada@db/shop?table=hot&sslmode=require")
    ('postgres://ada@db/shop?sslmode=require', 'hot')
    """
    address, _, query = url.partition("?")
    options = parse_qsl(query)
    others = [(name, value) for name, value in options if name != "table"]
    rest = urlencode(others, safe="${}", quote_via=quote)
    return f"{address}?{rest}" if rest else address, dict(options).get("table")


def open_postgres(url: str, query: str, schema: Schema, as_log: bool = False) -> PostgresSink:
    """Check the URL and create a Postgres sink; `resume` connects."""
    try:
        import psycopg
    except ImportError:
        raise SinkError("a Postgres sink needs psycopg: pip install 'slicemill[postgres]'") from None
    address, table = split_table(url)
    try:
        psycopg.conninfo.conninfo_to_dict(address)
    except psycopg.ProgrammingError as problem:
        # The driver's message is omitted if the URL has a password, because it may contain a part of
        # the password.
        why = f" ({str(problem).strip()})" if address == redact_address(address) else ""
        raise SinkError(
            f"the sink of {query} is no Postgres address{why}; "
            "write postgres://user@host:port/database?table=t"
        ) from None
    target = tuple(table.split(".")) if table else (query,)
    if not schema.changelog or as_log:
        return PostgresSink(address, target, query, schema)
    if schema.key is None:
        raise SinkError(
            f"query {query} changes, and no columns tell its rows apart, so that they could be found in a "
            "table: select its groups, or its rank; or write its changes with _op (changelog=true)"
        )
    return PostgresTable(address, target, query, schema)


class PostgresSink:
    per_epoch = False

    def __init__(
        self,
        address: str,
        table: tuple[str, ...],
        query: str,
        schema: Schema,
        key: tuple[str, ...] = (),
    ) -> None:
        self._address = address
        self._key = key
        self._table = table
        self._query = query
        self._columns = (Column(TS, TIMESTAMP), *schema)
        self._owner = ""
        self._connection: Connection | None = None

    def resume(self, owner: str, stored: int) -> int:
        import psycopg

        self.close()
        self._owner = owner
        self._connection = psycopg.connect(
            resolve_secrets(self._address, partial(quote, safe="")),
            autocommit=True,
            connect_timeout=_CONNECT_TIMEOUT_S,
            application_name="slicemill",
        )
        with self._connection.transaction():
            self._make_tables(self._connection)
            self._connection.execute(
                f"INSERT INTO {CURSORS} (query, epoch, owner) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [self._query, stored, owner],
            )
            return self._position(self._connection)

    def deliver(self, first: int, last: int, table: pa.Table) -> None:
        with self._moving(first, last) as cursor:
            self._take(cursor, table)

    @contextmanager
    def _moving(self, first: int, last: int) -> Iterator[Cursor]:
        """Open a transaction that advances the cursor over a range of epochs."""
        connection = self._connection
        assert connection is not None, "resume the sink first"
        with connection.transaction(), connection.cursor() as cursor:
            found = self._position(connection)
            if found >= first:
                raise SinkError(f"{CURSORS} has {self._query} at epoch {found}, so {first} is not next")
            yield cursor
            cursor.execute(f"UPDATE {CURSORS} SET epoch = %s WHERE query = %s", [last, self._query])

    def _take(self, cursor: Cursor, table: pa.Table) -> None:
        """Write the rows of a delivery, within the transaction of the cursor."""
        _copy(cursor, self._target(), self._columns, table)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _position(self, connection: Connection) -> int:
        """Return the last delivered epoch, and lock its row for the transaction."""
        row = connection.execute(
            f"SELECT epoch, owner FROM {CURSORS} WHERE query = %s FOR UPDATE", [self._query]
        ).fetchone()
        if row is None or row[1] != self._owner:
            raise SinkError(
                f"this database has the results of another home's query {self._query}; rename the query, "
                f"or delete its row in {CURSORS} to let this one go on"
            )
        return int(row[0])

    def _make_tables(self, connection: Connection) -> None:
        from psycopg.sql import SQL, Identifier

        # The table is created only if missing, because CREATE … IF NOT EXISTS always requires the
        # privilege to create.
        cursors = SQL("query text PRIMARY KEY, epoch bigint NOT NULL, owner text NOT NULL")
        _make_missing(connection, Identifier(CURSORS), cursors)
        columns = SQL(", ").join(
            SQL("{} {}").format(Identifier(column.name), SQL(postgres_type(column.type)))
            for column in self._columns
        )
        if self._key:
            columns += SQL(", UNIQUE ({})").format(SQL(", ").join(map(Identifier, self._key)))
        _make_missing(connection, self._target(), columns)

    def _target(self) -> Identifier:
        from psycopg.sql import Identifier

        return Identifier(*self._table)


class PostgresTable(PostgresSink):
    """Postgres table with the current rows of a changelog, updated by key.

    Changed rows are deleted and inserted in the transaction that advances the cursor. So readers see no
    intermediate state.
    """

    def __init__(self, address: str, table: tuple[str, ...], query: str, schema: Schema) -> None:
        assert schema.key is not None, "rows are found by their key"
        super().__init__(address, table, query, schema.own, schema.key)
        self._changes = schema
        self._keys = tuple(column for column in schema.own if column.name in schema.key)

    def replace(self, last: int, table: pa.Table) -> None:
        from psycopg.sql import SQL

        with self._moving(last, last) as cursor:
            cursor.execute(SQL("DELETE FROM {}").format(self._target()))
            _copy(cursor, self._target(), self._columns, table)

    def _take(self, cursor: Cursor, table: pa.Table) -> None:
        from psycopg.sql import SQL, Identifier

        if self._keys:
            columns = [
                SQL("{} {}").format(Identifier(c.name), SQL(postgres_type(c.type))) for c in self._keys
            ]
            touched = Identifier(TOUCHED)
            made = SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP").format(
                touched, SQL(", ").join(columns)
            )
            cursor.execute(made)
            _copy(cursor, touched, self._keys, table)
            # Postgres finds equal keys with an index.
            # Keys with NULL need a table scan, because NULL does not equal NULL.
            names = [Identifier(column.name) for column in self._keys]
            equal = [SQL("t.{0} = {1}.{0}").format(name, touched) for name in names]
            same = [SQL("t.{0} IS NOT DISTINCT FROM {1}.{0}").format(name, touched) for name in names]
            unknown = SQL(" OR ").join(SQL("{}.{} IS NULL").format(touched, name) for name in names)
            for conditions in (equal, [*same, SQL("({})").format(unknown)]):
                where = SQL(" AND ").join(conditions)
                cursor.execute(
                    SQL("DELETE FROM {} t USING {} WHERE {}").format(self._target(), touched, where)
                )
        elif table.num_rows:
            cursor.execute(SQL("DELETE FROM {}").format(self._target()))
        _copy(cursor, self._target(), self._columns, table_of_now(table, self._changes))


def _copy(cursor: Cursor, target: Identifier, columns: Sequence[Column], table: pa.Table) -> None:
    from psycopg.sql import SQL, Identifier

    names = SQL(", ").join(Identifier(column.name) for column in columns)
    values = [
        [
            _convert_value(value, column.type)
            for value in column_values(table.column(column.name), column.type)
        ]
        for column in columns
    ]
    with cursor.copy(SQL("COPY {} ({}) FROM STDIN").format(target, names)) as copy:
        for row in zip(*values, strict=True):
            copy.write_row(row)


def _convert_value(value: object, type_: Type) -> object:
    if type_.element is not None:
        element = type_.element
        return (
            None
            if value is None
            else [_convert_value(one, element) for one in cast(tuple[object, ...], value)]
        )
    return _CONVERT.get(type_.kind, _same)(value)


def _make_missing(connection: Connection, table: Identifier, columns: Composable) -> None:
    from psycopg.sql import SQL

    found = connection.execute("SELECT to_regclass(%s)", [table.as_string(connection)]).fetchone()
    if found is None or found[0] is None:
        connection.execute(SQL("CREATE TABLE {} ({})").format(table, columns))


def _same(value: object) -> object:
    return value


def _instant(value: object) -> object:
    return None if value is None else _EPOCH + timedelta(microseconds=cast(int, value))


def _date(value: object) -> object:
    return None if value is None else (_EPOCH + timedelta(days=cast(int, value))).date()


def _interval(value: object) -> object:
    return None if value is None else timedelta(microseconds=cast(int, value))


def _months(value: object) -> object:
    return None if value is None else f"{value} months"


def _period(value: object) -> object:
    from psycopg.types.range import Range

    if value is None:
        return None
    begin, end = cast(tuple[int, int], value)
    return Range(_instant(begin), _instant(end))


_CONVERT: dict[Kind, Callable[[object], object]] = {
    Kind.TIMESTAMP: _instant,
    Kind.DATE: _date,
    Kind.INTERVAL: _interval,
    Kind.MONTHS: _months,
    Kind.PERIOD: _period,
}

"""Catalog: declared streams, tables, views, aggregates and queries, by case-insensitive name."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.alert import Alert
from slicemill.catalog.expressions import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.catalog.extended import CalledDefinition, ComputedStream, predefined
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import (
    Continuous,
    LoadBudget,
    QueryInput,
    RelationQuery,
    SelectQuery,
    ServiceLevel,
    UnionQuery,
)
from slicemill.catalog.statements import LifecycleChange, Replay
from slicemill.extension import called_kinds
from slicemill.secrets import redact_address
from slicemill.time import BEGINNING, END
from slicemill.types import VARCHAR, Column, Schema, TimestampUnits

FILE_FORMATS = ("csv", "json", "jsonl", "ndjson", "parquet")
_NO_FILE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://|port\d+$")
LATE = "_late"
ERRORS = "_errors"
HELD = "_held"  # suffix of the log with rows that wait to be sorted, which queries cannot read
INTO = " into "  # separator in internal names of what aggregate `f` or query `q` writes into table `t`
JOINING = " (joining)"  # name suffix of a backfilling query's copy in the shared plan, without results
AGAIN = " (again for "  # name part of a copy of a stream whose source is read again for a new query
TABLE_SINK = "table:"
# Values of the query option `incomplete`, which concerns windows that began before the query was created.
HIDDEN, SHOWN = "hide", "show"
ERROR_SCHEMA = Schema((Column("raw", VARCHAR), Column("reason", VARCHAR)))


class TimestampKind(StrEnum):
    """Origin of a stream's timestamps (M24)."""

    EXTERNAL = "external"  # timestamp in a column of the tuple, set by the producer
    INTERNAL = "internal"  # time of the engine's clock when the tuple arrives
    LATENT = "latent"  # no timestamp until an operator assigns a timestamp


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Source of a stream or table, from which rows are read.

    The source is a URL, or a Spark format with options. Without either, a program feeds the rows.
    """

    url: str | None = None
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_files(self) -> bool:
        """Return True for files, which can be read again.

        Sockets and generators cannot be read again.
        """
        if self.format is not None:
            return self.format.lower() in FILE_FORMATS
        url = self.url or ""
        return bool(url) and not _NO_FILE.match(url)

    def __str__(self) -> str:
        return redact_address(self.url or "") or self.format or "(fed by a program)"


@dataclass(frozen=True, slots=True)
class Stream:
    """Declared stream (CREATE STREAM).

    `retain_us` is the retention of rows that all queries have read. `begin_us` is the position at which
    queries of the stream start: BEGINNING for EARLIEST, END for LATEST, or a time before which rows are
    skipped. None selects the default of `starts_early`.
    """

    name: str
    schema: Schema
    kind: TimestampKind
    time_column: str | None
    slack_us: int
    skew_us: int | None
    source: SourceSpec
    units: TimestampUnits = ()
    retain_us: int | None = None
    begin_us: int | None = None

    @property
    def has_past(self) -> bool:
        """Return True if the source can be read from the beginning again."""
        return self.source.is_files

    @property
    def starts_early(self) -> bool:
        """Return True if new queries always start with the first row.

        Otherwise a query starts with the rows that arrive after its creation.
        """
        return self.has_past if self.begin_us is None else self.begin_us != END

    @property
    def stamp_column(self) -> str | None:
        """Return the name of the `current_time` column, which is set when a row arrives."""
        return self.time_column if self.kind is TimestampKind.INTERNAL else None

    @property
    def source_schema(self) -> Schema:
        """Return the columns that the source sends: all columns except `current_time`."""
        return Schema(tuple(column for column in self.schema if column.name != self.stamp_column))

    @property
    def oldest_us(self) -> int | None:
        """Return the time before which rows are skipped (BEGIN TIMESTAMP), or None."""
        return None if self.begin_us in (None, BEGINNING, END) else self.begin_us

    @property
    def encoded_schema(self) -> Schema:
        """Return the columns that the source sends, with the units of its timestamps.

        For example, a source may send a timestamp as a number of milliseconds.
        """
        return self.source_schema.with_units(self.units)

    @property
    def sides(self) -> tuple[str, ...]:
        """Return the name suffixes of the logs with late, bad and waiting rows of the stream."""
        return (LATE, ERRORS, HELD) if self.kind is TimestampKind.EXTERNAL else (ERRORS,)


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """Stream defined by a query.

    `order` is the timestamp column if it differs from the query's timestamp. `writers` are internal queries
    that write tables, as in QueryDefinition.
    """

    name: str
    query: Continuous
    order: str | None = None
    slack_us: int = 0
    retain_us: int | None = None
    writers: tuple[QueryDefinition, ...] = ()

    @property
    def schema(self) -> Schema:
        return self.query.schema


@dataclass(frozen=True, slots=True)
class Materialized:
    """Query or stream whose results a table stores, and the schema of its changelog."""

    name: str
    changes: Schema


@dataclass(frozen=True, slots=True)
class Table:
    """Table with stored rows or the rows of a source.

    A source is read again every `refresh_us`. `key` is unique. Columns in `required` and key columns are
    never NULL.
    """

    name: str
    schema: Schema
    source: SourceSpec
    units: TimestampUnits = ()
    key: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    refresh_us: int | None = None
    materialized: Materialized | None = None

    @property
    def owns_rows(self) -> bool:
        """Return True if INSERT, UPDATE and DELETE change the rows.

        These rows are stored in the home directory.
        """
        return self.source == SourceSpec() and self.materialized is None

    @property
    def encoded_schema(self) -> Schema:
        """Return the columns of the table, with the units of its source's timestamps."""
        return self.schema.with_units(self.units)


@dataclass(frozen=True, slots=True)
class View:
    """View over tables, or over one window of a stream (M40)."""

    name: str
    query: Continuous | RelationQuery

    @property
    def schema(self) -> Schema:
        return self.query.schema


@dataclass(frozen=True, slots=True)
class QueryOptions:
    weight: float = 1.0
    sink: str | None = None
    slo: ServiceLevel | None = None
    memory: str | None = None
    shedding: str | None = None
    lag: str | None = None
    keep: str | None = None
    utility: str | None = None
    incomplete: str = HIDDEN

    @property
    def table(self) -> str | None:
        """Return the table name in the option `sink = 'table:name'`, or None."""
        if self.sink is None or not self.sink.lower().startswith(TABLE_SINK):
            return None
        return self.sink[len(TABLE_SINK) :]


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """Continuous query, or an ad hoc query if it reads only tables.

    `load` is the load-shedding budget, and `utility` ranks tuples for shedding. `begins_us` is the time of
    the first tuples that the query reads: BEGINNING for all, END for tuples that arrive after its creation,
    and None for the default of its streams.

    If aggregates of the query insert into tables, `writers` are internal queries that write these rows.
    Writers are created and dropped with this query, and their `writes_for` is the name of this query.
    """

    name: str
    query: Continuous | RelationQuery
    options: QueryOptions
    text: str
    load: LoadBudget | None = None
    utility: Expr | None = None
    retain_us: int | None = None
    begins_us: int | None = None
    writers: tuple[QueryDefinition, ...] = ()
    writes_for: str | None = None

    @property
    def schema(self) -> Schema:
        return self.query.schema

    @property
    def continuous(self) -> bool:
        return not isinstance(self.query, RelationQuery)


@dataclass(frozen=True, slots=True)
class AlteredQuery:
    """`ALTER QUERY q SET (…)`: new execution options for a query.

    The options do not change the results.
    """

    before: QueryDefinition
    after: QueryDefinition

    @property
    def name(self) -> str:
        return self.after.name


@dataclass(frozen=True, slots=True)
class AlteredStream:
    """`ALTER STREAM s ADD COLUMN …`: new columns of a stream for future rows.

    `defaults` has the values of these columns in earlier rows, unless they are NULL.
    """

    before: Stream
    after: Stream
    defaults: tuple[tuple[str, object], ...] = ()

    @property
    def name(self) -> str:
        return self.after.name

    @property
    def added(self) -> Schema:
        return Schema(self.after.schema.columns[len(self.before.schema) :])


@dataclass(frozen=True, slots=True)
class DroppedName:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Setting:
    """`SET name = 'value'`: setting that does not change results.

    With a `component`, the setting applies only to queries connected with that stream or query.
    """

    name: str
    value: str
    component: str | None = None


Relation: TypeAlias = Stream | DerivedStream | ComputedStream | Table | View
Statement: TypeAlias = (
    Relation
    | QueryDefinition
    | AggregateDefinition
    | CalledDefinition
    | FunctionDefinition
    | Alert
    | AlteredQuery
    | AlteredStream
    | DroppedName
    | Setting
    | LifecycleChange
    | Replay
)


@dataclass(slots=True)
class Catalog:
    """All declared objects: streams, tables, views, aggregates, functions and queries.

    `function_calls` maps the kind and name of an object to the user-defined functions that it calls.
    """

    relations: dict[str, Relation] = field(default_factory=dict)
    queries: dict[str, QueryDefinition] = field(default_factory=dict)
    base_aggregates: dict[str, AggregateDefinition] = field(default_factory=dict)
    window_aggregates: dict[str, AggregateDefinition] = field(default_factory=dict)
    callables: dict[str, CalledDefinition] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    functions: dict[str, FunctionDefinition] = field(default_factory=dict)
    function_calls: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)

    def without_queries(self, names: Collection[str] | None = None) -> Catalog:
        """Return a copy without the named queries.

        If `names` is None, all queries are removed.
        """
        kept = {} if names is None else {n: query for n, query in self.queries.items() if n not in names}
        return replace(self, queries=kept)

    def copy(self) -> Catalog:
        return Catalog(
            dict(self.relations),
            dict(self.queries),
            dict(self.base_aggregates),
            dict(self.window_aggregates),
            dict(self.callables),
            dict(self.settings),
            dict(self.functions),
            dict(self.function_calls),
            dict(self.alerts),
        )

    def relation(self, name: str) -> Relation | None:
        """Return a relation by name, including streams of late rows and of bad rows."""
        return self.relations.get(name.lower()) or self._side_stream(name.lower())

    def declared_stream(self, name: str) -> Stream:
        """Return the declared stream to which a name belongs.

        The name may also be that of its late rows, its bad rows, or an internal copy of the stream.
        """
        origin, again, query = name.partition(AGAIN)
        if again:
            stream = self.declared_stream(origin)
            return replace(stream, name=f"{stream.name}{AGAIN}{query.rpartition(')')[0]})", retain_us=None)
        for candidate in (name, name.removesuffix(LATE), name.removesuffix(ERRORS)):
            found = self.relations.get(candidate.lower())
            if isinstance(found, Stream):
                return found
        raise KeyError(name)

    def _side_stream(self, name: str) -> Stream | None:
        """Return the stream of the late rows or bad rows of a declared stream, or None.

        `<stream>_late` has tuples that were too late, and `<stream>_errors` has bad rows. Both use the
        arrival time as timestamp, because the tuple's own timestamp is late or unreadable.
        """
        for suffix, schema in ((LATE, None), (ERRORS, ERROR_SCHEMA)):
            owner = self.relations.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
            if isinstance(owner, Stream) and suffix in owner.sides:
                columns = owner.schema if schema is None else schema
                return Stream(
                    owner.name + suffix,
                    columns,
                    TimestampKind.INTERNAL,
                    None,
                    0,
                    None,
                    SourceSpec(),
                    retain_us=owner.retain_us,
                )
        return None

    def owner_of(self, name: str) -> Stream | None:
        """Return the declared stream to which a log of late, bad or waiting rows belongs.

        Return None for all other logs.
        """
        for suffix in (LATE, ERRORS, HELD):
            owner = self.relations.get(name.lower().removesuffix(suffix))
            if name.lower().endswith(suffix) and isinstance(owner, Stream) and suffix in owner.sides:
                return owner
        return None

    def declared_versions(self, name: str) -> tuple[AggregateDefinition | None, AggregateDefinition | None]:
        """Return a user-defined aggregate: its definition over all tuples and over windows.

        The name may also be an instance of a CalledDefinition, such as `name[…]`, or an internal name of what
        an aggregate writes into a table, such as `f into t`.
        """
        key = name.lower()
        found = self.base_aggregates.get(key), self.window_aggregates.get(key)
        instance = None if any(found) else self._instance(name)
        if instance is None and not any(found) and INTO in key:
            base, window = (
                self._writing(known, key) for known in (self.base_aggregates, self.window_aggregates)
            )
            return base, window
        return found if instance is None else instance[1].versions

    @staticmethod
    def _writing(known: dict[str, AggregateDefinition], key: str) -> AggregateDefinition | None:
        version = known.get(key.partition(INTO)[0])
        written = () if version is None else version.written
        return next((one for one in written if one.name.lower() == key), None)

    def _instance(self, name: str) -> tuple[CalledDefinition, CalledDefinition] | None:
        """Return a definition and its instance for a name such as `name[…]`, or None."""
        for end, letter in enumerate(name):
            declared = self.callables.get(name[:end].lower()) if letter in "[." else None
            found = declared.instance(name) if declared is not None else None
            if declared is not None and found is not None:
                return declared, found
        return None

    def declaration_name(self, name: str) -> str:
        """Return the name under which a called aggregate was declared."""
        instance = self._instance(name)
        if instance is None and INTO in name and any(found := self.declared_versions(name)):
            return next(one for one in found if one is not None).name.partition(INTO)[0]
        return name if instance is None else instance[0].name

    def aggregates(self, name: str) -> tuple[AggregateDefinition | None, AggregateDefinition | None]:
        """Return an aggregate's definition over all tuples, and its definition over windows.

        User-defined aggregates take precedence over predefined aggregates.
        """
        declared, known = self.declared_versions(name), predefined(name)
        if any(declared) or known is None or name.lower() in self.functions:
            return declared
        return known.versions

    def callable_named(self, name: str) -> CalledDefinition | None:
        """Return the called object of an extension (such as a model) with this name, or None."""
        own, taken = self.callables.get(name.lower()), name.lower() in self.functions
        instance = self._instance(name)
        if instance is not None:
            return instance[1]
        return own or (None if taken or any(self.declared_versions(name)) else predefined(name))

    def add(self, statement: Statement, functions: Collection[str] = ()) -> None:
        """Apply a bound statement: add, change or drop its object.

        `functions` are the user-defined functions that the object calls.
        """
        if isinstance(statement, (LifecycleChange, Replay)):
            return  # PAUSE, RESUME, RESTART and REPLAY do not change the catalog
        if isinstance(statement, (AlteredQuery, AlteredStream)):
            statement = statement.after
        key = statement.name.lower()
        if functions:
            user = _user_kind(statement), key
            self.function_calls[user] = self.function_calls.get(user, frozenset()) | frozenset(functions)
        if isinstance(statement, (QueryDefinition, DerivedStream)):
            self._put_writers(key, statement.writers)
        if isinstance(statement, QueryDefinition):
            self.queries[key] = statement
        elif isinstance(statement, AggregateDefinition):
            (self.window_aggregates if statement.window else self.base_aggregates)[key] = statement
        elif isinstance(statement, CalledDefinition):
            self.callables[key] = statement
            base, window = statement.versions
            if base is not None:
                self.base_aggregates[key] = base
            if window is not None:
                self.window_aggregates[key] = window
        elif isinstance(statement, FunctionDefinition):
            self.functions[key] = statement
        elif isinstance(statement, Alert):
            self.alerts[key] = statement
        elif isinstance(statement, DroppedName):
            self._remove(statement.kind, key)
        elif isinstance(statement, Setting):
            self.settings[key] = statement.value
        else:
            self.relations[key] = statement

    def writers_for(self, name: str) -> list[QueryDefinition]:
        """Return the internal queries that write tables for a query or stream.

        These queries write the rows that aggregates of the query insert into tables.
        """
        return [one for one in self.queries.values() if (one.writes_for or "").lower() == name.lower()]

    def _put_writers(self, key: str, writers: Collection[QueryDefinition]) -> None:
        for one in self.writers_for(key):
            del self.queries[one.name.lower()]
        self.queries |= {one.name.lower(): one for one in writers}

    def forget_calls(self, statement: Statement) -> None:
        """Remove the recorded function calls of an object that a statement replaces."""
        self.function_calls.pop((_user_kind(statement), statement.name.lower()), None)

    def _remove(self, kind: str, key: str) -> None:
        user = (
            kind if kind in ("QUERY", "FUNCTION") else "AGGREGATE" if kind in called_kinds() else "RELATION"
        )
        self.function_calls.pop((user, key), None)
        if kind in ("QUERY", "STREAM"):
            self._put_writers(key, ())
        if kind == "QUERY":
            self.queries.pop(key, None)
        elif kind == "FUNCTION":
            self.functions.pop(key, None)
        elif kind == "ALERT":
            self.alerts.pop(key, None)
        elif kind in called_kinds():
            self.callables.pop(key, None)
            self.base_aggregates.pop(key, None)
            self.window_aggregates.pop(key, None)
        else:
            self.relations.pop(key, None)

    def _find_user(self, user: tuple[str, str]) -> Statement | None:
        kind, key = user
        if kind == "AGGREGATE":
            return self.callables.get(key) or self.base_aggregates.get(key) or self.window_aggregates.get(key)
        if kind == "FUNCTION":
            return self.functions.get(key)
        return self.queries.get(key) if kind == "QUERY" else self.relations.get(key)

    def alerts_on(self, name: str) -> list[str]:
        """Return the names of the alerts on a query or stream.

        The result includes alerts on the internal queries that write tables for the query.
        """
        watched = [alert for alert in self.alerts.values() if alert.target is not None]
        names = {name.lower(), *(one.name.lower() for one in self.writers_for(name))}
        return [alert.name for alert in watched if (alert.target or "").lower() in names]

    def dependants(self, kind: str, name: str) -> list[str]:
        """Return the names of the objects that use a relation, aggregate or function."""
        return [user.name for user in self.users(kind, name)]

    def users(self, kind: str, name: str) -> list[Statement]:
        """Return the objects that use a relation, aggregate or function.

        For a function, the result includes aggregates and other functions. For a table, the result includes
        the queries and aggregates that write the table.
        """
        wanted = name.lower()
        if kind == "FUNCTION":
            users = (
                self._find_user(user) for user, called in self.function_calls.items() if wanted in called
            )
            return [user for user in users if user is not None]
        found: list[Statement] = []
        if kind not in called_kinds():
            # Each aggregate is visited once, although it may be defined over all tuples and over windows.
            defined = {**self.window_aggregates, **self.base_aggregates}
            for aggregate in defined.values():
                versions = self.declared_versions(aggregate.name)
                into = [one.into for version in versions if version is not None for one in version.written]
                if wanted in {table.lower() for table in into if table is not None}:
                    found.append(aggregate)
        for statement in (*self.relations.values(), *self.queries.values()):
            if isinstance(statement, QueryDefinition) and statement.writes_for is not None:
                continue  # an internal query is dropped together with the query for which it writes
            used = _dependencies(statement, kind)
            if wanted in {
                (self.declaration_name(entry) if kind in called_kinds() else entry).lower() for entry in used
            }:
                found.append(statement)
        return found

    def all_users(
        self,
        statement: Statement,
        callers: Callable[[Statement], list[Statement]] = lambda _: [],
        *,
        of_tables: bool = True,
    ) -> list[Statement]:
        """Return all direct and indirect users of an object, in breadth-first order.

        `callers` returns additional users of a statement, which are found by searching aggregate bodies. With
        `of_tables=False`, the result includes tables but not the users of these tables.
        """
        found: list[Statement] = []
        waiting = [statement]
        while waiting:
            one = waiting.pop(0)
            kind = _user_kind(one)
            users = [*self.users(kind, one.name), *callers(one)]
            if kind == "QUERY":  # a query is used only by materialized tables; a relation may have its name
                users = [user for user in users if isinstance(user, Table)]
            fresh = [user for user in users if all(user is not known for known in (statement, *found))]
            found += fresh
            waiting += [user for user in fresh if of_tables or not isinstance(user, Table)]
        return found


def _user_kind(statement: Statement) -> str:
    """Return the kind of users to search for a statement's object, such as QUERY."""
    if isinstance(statement, QueryDefinition):
        return "QUERY"
    if isinstance(statement, FunctionDefinition):
        return "FUNCTION"
    called = isinstance(statement, (AggregateDefinition, CalledDefinition))
    return "AGGREGATE" if called else "RELATION"


def _dependencies(statement: Relation | QueryDefinition, kind: str) -> Iterator[str]:
    called = kind in called_kinds()
    if isinstance(statement, ComputedStream):
        if not called:
            yield from statement.reads
    elif isinstance(statement, Table):
        if not called and statement.materialized is not None:
            yield statement.materialized.name
    elif isinstance(statement, (DerivedStream, View, QueryDefinition)):
        yield from (_aggregates_of if called else relations_of)(statement.query)
        if not called:
            yield from tables_written(statement)


def tables_written(statement: DerivedStream | View | QueryDefinition) -> Iterator[str]:
    """Yield the names of the tables that a statement and its aggregates write."""
    if isinstance(statement, View):
        return
    writing = [statement, *statement.writers] if isinstance(statement, QueryDefinition) else statement.writers
    yield from (one.options.table for one in writing if one.options.table)


def relations_of(query: Continuous | RelationQuery) -> Iterator[str]:
    """Yield the names of the relations in FROM of a query and its nested queries."""
    for part in queries_in(query):
        yield from (e.relation for e in part.inputs if e.query is None and e.relation is not None)


def _aggregates_of(query: Continuous | RelationQuery) -> Iterator[str]:
    for part in queries_in(query):
        yield from (call.name for call in part.aggregates)
        if isinstance(part, SelectQuery):
            yield from (call.name for call in part.window_calls)


def queries_in(query: Continuous | RelationQuery) -> Iterator[SelectQuery | RelationQuery]:
    """Yield all SELECTs of a query: UNION branches and nested queries."""
    if isinstance(query, UnionQuery):
        for branch in query.branches:
            yield from queries_in(branch)
        return
    yield query
    for entry in query.inputs:
        if isinstance(entry, QueryInput) and entry.call is None:
            if entry.query is not None:
                yield from queries_in(entry.query)
            continue
        below = entry.call if isinstance(entry, QueryInput) else entry
        for inner in below.queries if below is not None else ():
            yield from queries_in(inner)
    if isinstance(query, RelationQuery):
        values = (item.expr for item in (*query.group_by, *query.items))
        arguments = (argument for call in query.aggregates for argument in call.arguments)
        sorted_by = (expr for expr, _ in query.order_by)
        conditions = (expr for expr in (query.where, query.having) if expr is not None)
        given = (value for entry in query.inputs for _, value in entry.arguments or ())
        for expr in (*values, *arguments, *sorted_by, *conditions, *given):
            for node in walk(expr):
                if isinstance(node, (ScalarQuery, ExistsQuery)):
                    yield from queries_in(node.query)

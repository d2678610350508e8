"""What has been declared: streams, tables, views, aggregates and queries, by name without regard to case."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TypeAlias

from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.alert import Alert
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.expression import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.esl.types.function import FunctionDefinition
from slicemill.esl.types.lives import LifeChange
from slicemill.esl.types.load_budget import LoadBudget
from slicemill.esl.types.model import ModelDefinition, ModelTemplate, predefined
from slicemill.esl.types.query import Continuous, QueryInput, SelectQuery, UnionQuery
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.replay import Replay
from slicemill.esl.types.schema import VARCHAR, Column, Schema, TimestampUnits
from slicemill.esl.types.service_level import ServiceLevel
from slicemill.secrets import redacted_address
from slicemill.time import BEGINNING, END

FILE_FORMATS = ("csv", "json", "jsonl", "ndjson", "parquet")
_NO_FILE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://|port\d+$")
CALLED = ("AGGREGATE", "MODEL")  # what is used by calling it, as an aggregate
LATE = "_late"
ERRORS = "_errors"
HELD = "_held"  # rows that wait to be put in order; no query can read them
INTO = " into "  # what bodies of aggregates write: `f into t` of an aggregate, `q into t` of a query
JOINING = " (joining)"  # a query from the past, where it joins the others; its rows go nowhere so far
AGAIN = " (again for "  # a stream whose source is read a second time, for a query that came later
TABLE_SINK = "table:"
HIDDEN, SHOWN = "hide", "show"  # what happens to rows of windows that began before their query
ERROR_SCHEMA = Schema((Column("raw", VARCHAR), Column("reason", VARCHAR)))


class TimestampKind(StrEnum):
    """Who stamps a tuple (M24)."""

    EXTERNAL = "external"  # the producer: a column of the tuple
    INTERNAL = "internal"  # slicemill's clock, on entry
    LATENT = "latent"  # nobody; operators that need one stamp on the fly


@dataclass(frozen=True, slots=True)
class SourceSpec:
    """Where tuples or rows come from: a URL, or a Spark format with options. Neither: fed by a program."""

    url: str | None = None
    format: str | None = None
    options: tuple[tuple[str, str], ...] = ()

    @property
    def is_files(self) -> bool:
        """Return True if it names files: they can be read again, other than sockets and generators."""
        if self.format is not None:
            return self.format.lower() in FILE_FORMATS
        url = self.url or ""
        return bool(url) and not _NO_FILE.match(url)

    def __str__(self) -> str:
        return redacted_address(self.url or "") or self.format or "(fed by a program)"


@dataclass(frozen=True, slots=True)
class Stream:
    """`retain_us` is how long its rows stay although every query has read them: all rows, whole.

    `begin_us` is where its queries start: BEGINNING for EARLIEST, END for LATEST, or a time before which
    rows are left out. None stands for the default.
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
        """Return True if its source can be read from the beginning a second time."""
        return self.source.is_files

    @property
    def starts_early(self) -> bool:
        """Return True if its queries start with the first row, whenever they are created."""
        return self.has_past if self.begin_us is None else self.begin_us != END

    @property
    def stamp_column(self) -> str | None:
        """The declared `current_time` column, which the intake fills when a row arrives."""
        return self.time_column if self.kind is TimestampKind.INTERNAL else None

    @property
    def sent(self) -> Schema:
        """The columns that the source sends: all but the stamp column."""
        return Schema(tuple(column for column in self.schema if column.name != self.stamp_column))

    @property
    def oldest_us(self) -> int | None:
        """Return the time before which rows are left out (BEGIN TIMESTAMP), None if there is none."""
        return None if self.begin_us in (None, BEGINNING, END) else self.begin_us

    @property
    def written(self) -> Schema:
        """The sent columns as the source writes them: a time may be a number of some unit."""
        return self.sent.with_units(self.units)

    @property
    def sides(self) -> tuple[str, ...]:
        """What the names of the logs end in that it has beside its own."""
        return (LATE, ERRORS, HELD) if self.kind is TimestampKind.EXTERNAL else (ERRORS,)


@dataclass(frozen=True, slots=True)
class DerivedStream:
    """`order` is the column that says when its rows are, if another than their query's time does.

    `writers` are as those of a query.
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
    """The query or stream whose results a table is made of, and the columns of its changes."""

    name: str
    changes: Schema


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of its own, or those of a source, which is read again every `refresh_us`.

    No two rows have the same `key`; `required` columns, and those of the key, are never NULL.
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
        """Do its rows lie in the home, to be changed by INSERT, UPDATE and DELETE?"""
        return self.source == SourceSpec() and self.materialized is None

    @property
    def written(self) -> Schema:
        """The columns as the source writes them: a time may be a number of some unit."""
        return self.schema.with_units(self.units)


@dataclass(frozen=True, slots=True)
class View:
    """A concrete view (M40): a finite relation, over tables or over windows of streams."""

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
        """The table that results are written into, one that has rows of its own: `sink = 'table:name'`."""
        if self.sink is None or not self.sink.lower().startswith(TABLE_SINK):
            return None
        return self.sink[len(TABLE_SINK) :]


@dataclass(frozen=True, slots=True)
class QueryDefinition:
    """A standing query, or an ad hoc one where only tables are read.

    `load` is what it gives up under load, and `utility` what it would miss most. `begins_us` is the time of
    the first tuples that it reads: BEGINNING for all, END for those that arrive from now on. None: its
    streams say it.
    `writers` are the queries for what bodies of its aggregates insert into tables: they come and go with it,
    and `writes_for` is its name in each of them.
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
    """`ALTER QUERY q SET (…)`: how a query is run and delivered from then on; what it computes stays."""

    before: QueryDefinition
    after: QueryDefinition

    @property
    def name(self) -> str:
        return self.after.name


@dataclass(frozen=True, slots=True)
class AlteredStream:
    """`ALTER STREAM s ADD COLUMN …`: its rows have more columns from then on.

    `defaults` are what rows from before have in them, where that is not NULL.
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
    """`SET name = 'value'`: how the mill works from then on; what comes out does not depend on it.

    With a component, only for what is connected with that stream or query.
    """

    name: str
    value: str
    component: str | None = None


Relation: TypeAlias = Stream | DerivedStream | Classifier | Table | View
Statement: TypeAlias = (
    Relation
    | QueryDefinition
    | AggregateDefinition
    | ModelDefinition
    | ModelTemplate
    | FunctionDefinition
    | Alert
    | AlteredQuery
    | AlteredStream
    | DroppedName
    | Setting
    | LifeChange
    | Replay
)


@dataclass(slots=True)
class Catalog:
    """`function_calls` has, by kind and name of a statement, the users' functions that it calls."""

    relations: dict[str, Relation] = field(default_factory=dict)
    queries: dict[str, QueryDefinition] = field(default_factory=dict)
    base_aggregates: dict[str, AggregateDefinition] = field(default_factory=dict)
    window_aggregates: dict[str, AggregateDefinition] = field(default_factory=dict)
    models: dict[str, ModelDefinition | ModelTemplate] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    functions: dict[str, FunctionDefinition] = field(default_factory=dict)
    function_calls: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    alerts: dict[str, Alert] = field(default_factory=dict)

    def without_queries(self, names: Collection[str] | None = None) -> Catalog:
        """The catalog without some of its queries; if none are named, what queries are made of."""
        kept = {} if names is None else {n: query for n, query in self.queries.items() if n not in names}
        return replace(self, queries=kept)

    def copy(self) -> Catalog:
        return Catalog(
            dict(self.relations),
            dict(self.queries),
            dict(self.base_aggregates),
            dict(self.window_aggregates),
            dict(self.models),
            dict(self.settings),
            dict(self.functions),
            dict(self.function_calls),
            dict(self.alerts),
        )

    def relation(self, name: str) -> Relation | None:
        """A declared relation, or the side stream that a declared stream brings with it."""
        return self.relations.get(name.lower()) or self._side_stream(name.lower())

    def declared_stream(self, name: str) -> Stream:
        """The declared stream behind a stream: itself, or the one whose late or error stream it is."""
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
        """`<stream>_late` holds tuples that came too late for their order, `<stream>_errors` unreadable ones.

        Both are stamped on arrival: their own time is what went wrong.
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
        """The declared stream that keeps rows beside its own under this name: late, bad or held back."""
        for suffix in (LATE, ERRORS, HELD):
            owner = self.relations.get(name.lower().removesuffix(suffix))
            if name.lower().endswith(suffix) and isinstance(owner, Stream) and suffix in owner.sides:
                return owner
        return None

    def declared_versions(self, name: str) -> tuple[AggregateDefinition | None, AggregateDefinition | None]:
        """The user's base and window version of an aggregate, also of an instance of a model, or of what an
        aggregate writes into a table."""
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

    def _instance(self, name: str) -> tuple[ModelTemplate, ModelDefinition] | None:
        """The model of which a name is that of an instance, and the instance."""
        for end, letter in enumerate(name):
            template = self.models.get(name[:end].lower()) if letter in "[." else None
            found = template.instance(name) if isinstance(template, ModelTemplate) else None
            if isinstance(template, ModelTemplate) and found is not None:
                return template, found
        return None

    def declared_as(self, name: str) -> str:
        """The name under which an aggregate is declared that is called by this one."""
        instance = self._instance(name)
        if instance is None and INTO in name and any(found := self.declared_versions(name)):
            return next(one for one in found if one is not None).name.partition(INTO)[0]
        return name if instance is None else instance[0].name

    def aggregates(self, name: str) -> tuple[AggregateDefinition | None, AggregateDefinition | None]:
        """The base and window version of an aggregate: the user's, or those of a model that all have."""
        declared, known = self.declared_versions(name), predefined(name)
        if any(declared) or known is None or name.lower() in self.functions:
            return declared
        return known.versions

    def model(self, name: str) -> ModelDefinition | ModelTemplate | None:
        """The model of that name: the user's, or one that all have."""
        own, taken = self.models.get(name.lower()), name.lower() in self.functions
        instance = self._instance(name)
        if instance is not None:
            return instance[1]
        return own or (None if taken or any(self.declared_versions(name)) else predefined(name))

    def add(self, statement: Statement, functions: Collection[str] = ()) -> None:
        """Register, or for DroppedName remove, what a statement declares; `functions` of users it calls."""
        if isinstance(statement, (LifeChange, Replay)):
            return  # it declares nothing
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
        elif isinstance(statement, ModelDefinition):
            self.models[key] = statement
            self.base_aggregates[key], self.window_aggregates[key] = statement.versions
        elif isinstance(statement, ModelTemplate):
            self.models[key] = statement
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
        """The queries that write what bodies of aggregates insert that a query or stream calls."""
        return [one for one in self.queries.values() if (one.writes_for or "").lower() == name.lower()]

    def _put_writers(self, key: str, writers: Collection[QueryDefinition]) -> None:
        for one in self.writers_for(key):
            del self.queries[one.name.lower()]
        self.queries |= {one.name.lower(): one for one in writers}

    def forget_calls(self, statement: Statement) -> None:
        """Forget which functions are called by what a statement is about to take the place of."""
        self.function_calls.pop((_user_kind(statement), statement.name.lower()), None)

    def _remove(self, kind: str, key: str) -> None:
        user = kind if kind in ("QUERY", "FUNCTION") else "AGGREGATE" if kind in CALLED else "RELATION"
        self.function_calls.pop((user, key), None)
        if kind in ("QUERY", "STREAM"):
            self._put_writers(key, ())
        if kind == "QUERY":
            self.queries.pop(key, None)
        elif kind == "FUNCTION":
            self.functions.pop(key, None)
        elif kind == "ALERT":
            self.alerts.pop(key, None)
        elif kind in CALLED:
            self.models.pop(key, None)
            self.base_aggregates.pop(key, None)
            self.window_aggregates.pop(key, None)
        else:
            self.relations.pop(key, None)

    def _declared(self, user: tuple[str, str]) -> Statement | None:
        kind, key = user
        if kind == "AGGREGATE":
            return self.models.get(key) or self.base_aggregates.get(key) or self.window_aggregates.get(key)
        if kind == "FUNCTION":
            return self.functions.get(key)
        return self.queries.get(key) if kind == "QUERY" else self.relations.get(key)

    def alerts_on(self, name: str) -> list[str]:
        """Names of the alerts on a query or stream, or on what writes for it."""
        watched = [alert for alert in self.alerts.values() if alert.target is not None]
        names = {name.lower(), *(one.name.lower() for one in self.writers_for(name))}
        return [alert.name for alert in watched if (alert.target or "").lower() in names]

    def dependants(self, kind: str, name: str) -> list[str]:
        """The names of `users`."""
        return [user.name for user in self.users(kind, name)]

    def users(self, kind: str, name: str) -> list[Statement]:
        """The queries, views and streams that read a relation or call an aggregate or function.

        Functions are called by aggregates and by other functions as well, and tables are written by both.
        """
        wanted = name.lower()
        if kind == "FUNCTION":
            users = (self._declared(user) for user, called in self.function_calls.items() if wanted in called)
            return [user for user in users if user is not None]
        found: list[Statement] = []
        if kind not in CALLED:
            defined = {**self.window_aggregates, **self.base_aggregates}  # one of its versions for both
            for aggregate in defined.values():
                versions = self.declared_versions(aggregate.name)
                into = [one.into for version in versions if version is not None for one in version.written]
                if wanted in {table.lower() for table in into if table is not None}:
                    found.append(aggregate)
        for statement in (*self.relations.values(), *self.queries.values()):
            if isinstance(statement, QueryDefinition) and statement.writes_for is not None:
                continue  # it goes with whom it writes for
            used = _used_by(statement, kind)
            if wanted in {(self.declared_as(entry) if kind in CALLED else entry).lower() for entry in used}:
                found.append(statement)
        return found

    def all_users(
        self,
        statement: Statement,
        callers: Callable[[Statement], list[Statement]] = lambda _: [],
        *,
        of_tables: bool = True,
    ) -> list[Statement]:
        """All that is made of what a statement declares, be it by way of others, the nearest first.

        `callers` are those that have to be looked for in the bodies of aggregates. Without those `of_tables`,
        it ends with tables that are made of it.
        """
        found: list[Statement] = []
        waiting = [statement]
        while waiting:
            one = waiting.pop(0)
            kind = _user_kind(one)
            users = [*self.users(kind, one.name), *callers(one)]
            if kind == "QUERY":  # nothing else reads one by its name
                users = [user for user in users if isinstance(user, Table)]
            fresh = [user for user in users if all(user is not known for known in (statement, *found))]
            found += fresh
            waiting += [user for user in fresh if of_tables or not isinstance(user, Table)]
        return found


def _user_kind(statement: Statement) -> str:
    """Which names a statement's own is one of."""
    if isinstance(statement, QueryDefinition):
        return "QUERY"
    if isinstance(statement, FunctionDefinition):
        return "FUNCTION"
    called = isinstance(statement, (AggregateDefinition, ModelDefinition, ModelTemplate))
    return "AGGREGATE" if called else "RELATION"


def _used_by(statement: Relation | QueryDefinition, kind: str) -> Iterator[str]:
    if isinstance(statement, Classifier):
        if kind not in CALLED:
            yield from (*(entry.stream for entry in statement.inputs), statement.training)
    elif isinstance(statement, Table):
        if kind not in CALLED and statement.materialized is not None:
            yield statement.materialized.name
    elif isinstance(statement, (DerivedStream, View, QueryDefinition)):
        yield from (_aggregates_of if kind in CALLED else relations_of)(statement.query)
        if kind not in CALLED:
            yield from tables_written(statement)


def tables_written(statement: DerivedStream | View | QueryDefinition) -> Iterator[str]:
    """The tables that results of a statement, or bodies of aggregates that it calls, are written into."""
    if isinstance(statement, View):
        return
    writing = [statement, *statement.writers] if isinstance(statement, QueryDefinition) else statement.writers
    yield from (one.options.table for one in writing if one.options.table)


def relations_of(query: Continuous | RelationQuery) -> Iterator[str]:
    """The names in FROM, of a query and of those inside it."""
    for part in queries_in(query):
        yield from (e.relation for e in part.inputs if e.query is None and e.relation is not None)


def _aggregates_of(query: Continuous | RelationQuery) -> Iterator[str]:
    for part in queries_in(query):
        yield from (call.name for call in part.aggregates)
        if isinstance(part, SelectQuery):
            yield from (call.name for call in part.window_calls)


def queries_in(query: Continuous | RelationQuery) -> Iterator[SelectQuery | RelationQuery]:
    """A query without unions, and all that stand in its place or in its conditions and values."""
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

"""Binder of CREATE STREAM, VIEW and QUERY, queries without CREATE, DROP and SET."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from slicemill.binder.budgets import MEMORY, bind_load, with_budget
from slicemill.binder.changelog import check_sink, refuse_open_rank
from slicemill.binder.context import BrokenDependency, Context, ErrorCollector, kind_name
from slicemill.binder.expressions import parse_timestamp
from slicemill.binder.queries import bind_query
from slicemill.binder.table_writes import check_table_sink, stream_with_writers, with_writers
from slicemill.binder.types import bind_columns
from slicemill.binder.windows import duration_us
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.alert import Alert
from slicemill.catalog.catalog import (
    AGAIN,
    ERRORS,
    HELD,
    HIDDEN,
    JOINING,
    LATE,
    SHOWN,
    Catalog,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    QueryOptions,
    Relation,
    Setting,
    SourceSpec,
    Statement,
    Stream,
    Table,
    TimestampKind,
    View,
    relations_of,
)
from slicemill.catalog.extended import CalledDefinition, ComputedStream
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import (
    MEASURES,
    Continuous,
    FrameUnit,
    RelationQuery,
    UnionQuery,
    service_level,
)
from slicemill.errors import all_of, did_you_mean, one_of
from slicemill.extension import called_kinds
from slicemill.scheduling.policies import DEFAULT_POLICY, UnknownPolicyError, policy_named
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.time import BEGINNING, END
from slicemill.types import Kind, Schema

CURRENT_TIME = "current_time"
QUERY_OPTIONS = ("weight", "sink", "slo", "memory", "shedding", "lag", "keep", "utility", "incomplete")
_KEPT_ASIDE = {LATE: "late rows", ERRORS: "bad rows", HELD: "rows that wait to be put in order"}


def refuse_taken_name(identifier: exp.Identifier, context: Context) -> None:
    """Raise if the name of a CREATE is used or reserved."""
    owner = context.catalog.owner_of(identifier.name)
    if owner is not None:
        aside = _KEPT_ASIDE[identifier.name.lower()[len(owner.name) :]]
        raise StatementError(
            f"stream {owner.name} keeps {aside} under the name {identifier.name}",
            span_of(identifier),
            "choose another name",
        )
    if identifier.name.endswith(JOINING):
        raise StatementError(
            f"a name that ends in{JOINING} is for queries that join others",
            span_of(identifier),
            "choose another name",
        )
    if AGAIN in identifier.name:
        raise StatementError(
            f"a name with{AGAIN}… is for streams whose source is read again",
            span_of(identifier),
            "choose another name",
        )
    _refuse_relation(identifier, context)
    _refuse_query(identifier, context)


def _refuse_query(identifier: exp.Identifier, context: Context) -> None:
    known = context.catalog.queries.get(identifier.name.lower())
    if known is not None:
        raise StatementError(
            f"there is a query {known.name} already",
            span_of(identifier),
            f"choose another name, or DROP QUERY {known.name} first",
        )


def _refuse_relation(identifier: exp.Identifier, context: Context) -> None:
    known = context.catalog.relation(identifier.name)
    if known is not None:
        kind = kind_name(known)
        raise StatementError(
            f"there is a {kind} {known.name} already",
            span_of(identifier),
            f"choose another name, or DROP {kind.upper()} {known.name} first",
        )


def _refuse_taken_sides(stream: Stream, identifier: exp.Identifier, context: Context) -> None:
    """Raise if a name that a stream's late or bad rows would get is used."""
    for side in stream.sides:
        known = _find_relation_or_query(stream.name + side, context.catalog)
        if known is not None:
            kind = "query" if isinstance(known, QueryDefinition) else kind_name(known)
            raise StatementError(
                f"stream {stream.name} would keep {_KEPT_ASIDE[side]} under the name {stream.name}{side}, "
                f"and there is a {kind} of that name",
                span_of(identifier),
                f"choose another name for the stream, or DROP {kind.upper()} {known.name} first",
            )


def _find_relation_or_query(name: str, catalog: Catalog) -> Relation | QueryDefinition | None:
    return catalog.relations.get(name.lower()) or catalog.queries.get(name.lower())


def bind_stream(node: nodes.CreateStream, context: Context) -> Stream | DerivedStream:
    refuse_taken_name(node.this, context)
    if child(node, "query") is not None:
        query = bind_query(child(node, "query"), context)
        refuse_open_rank(query, child(node, "query"))
        if isinstance(query, RelationQuery):
            raise StatementError(
                "a stream is made from streams, and this reads tables only",
                span_of(child(node, "query")),
                "make it a CREATE VIEW",
            )
        return stream_with_writers(_bind_derived_stream(node, query), child(node, "query"), context)
    problems = ErrorCollector()
    schema = Schema(())
    with problems.collect():
        schema = bind_columns(child(node, "columns"), lists=True)
    problems.raise_any()
    kind, column = TimestampKind.LATENT, None
    with problems.collect():
        kind, column = _timestamps(node, schema)
    slack, skew = child(node, "slack"), child(node, "skew")
    slack_us, skew_us = 0, None
    with problems.collect():
        _only_external("SLACK", slack, kind)
        slack_us = duration_us(slack) if slack is not None else 0
    with problems.collect():
        _only_external("SKEW", skew, kind)
        skew_us = duration_us(skew) if skew is not None else None
    retain_us = None
    with problems.collect():
        retain_us = retention_us(child(node, "retain"))
    begin_us = None
    with problems.collect():
        begin_us = stream_begin_us(child(node, "begin"), kind)
    problems.raise_any()
    source, columns = bind_source(child(node, "source")), schema.with_units(())
    stream = Stream(
        node.this.name, columns, kind, column, slack_us, skew_us, source, schema.units, retain_us, begin_us
    )
    _refuse_taken_sides(stream, node.this, context)
    return stream


def _bind_derived_stream(node: nodes.CreateStream, query: Continuous) -> DerivedStream:
    order, slack = child(node, "order"), child(node, "slack")
    retain_us = retention_us(child(node, "retain"))
    if order is None:
        return DerivedStream(node.this.name, query, retain_us=retain_us)
    column = query.schema.find(order.name)
    times = [c.name for c in query.schema if c.type.kind is Kind.TIMESTAMP]
    if column is None or column.name not in times:
        what = f"there is no column {order.name}" if column is None else f"{column.name} is {column.type}"
        hint = f"order by {one_of(times)}" if times else "select a timestamp column to order by"
        raise StatementError(f"a stream is ordered by time, and {what} in it", span_of(order), hint)
    return DerivedStream(node.this.name, query, column.name, duration_us(slack), retain_us)


def retention_us(node: nodes.Duration | None) -> int | None:
    """Return the retention of a RETAIN clause in microseconds, or None without the clause."""
    if node is None:
        return None
    length = duration_us(node)
    if length <= 0:
        raise StatementError("RETAIN is longer than 0", span_of(node), "write RETAIN 7 DAYS, or leave it out")
    return length


def _timestamps(node: nodes.CreateStream, schema: Schema) -> tuple[TimestampKind, str | None]:
    order = child(node, "order")
    if order is None:
        return TimestampKind.LATENT, None
    column = schema.find(order.name)
    if column is not None and column.type.kind is not Kind.TIMESTAMP:
        times = [c.name for c in schema if c.type.kind is Kind.TIMESTAMP]
        hint = f"order by {one_of(times)}" if times else "declare it as TIMESTAMP"
        raise StatementError(
            f"a stream is ordered by time, and {column.name} is {column.type}", span_of(order), hint
        )
    if order.name.lower() == CURRENT_TIME:
        return TimestampKind.INTERNAL, column.name if column is not None else None
    if column is None:
        hint = did_you_mean(order.name, [*schema.names, CURRENT_TIME])
        raise StatementError(f"there is no column {order.name}", span_of(order), hint)
    return TimestampKind.EXTERNAL, column.name


def _only_external(word: str, node: exp.Expression | None, kind: TimestampKind) -> None:
    if node is not None and kind is not TimestampKind.EXTERNAL:
        raise StatementError(
            f"{word} needs a timestamp column in the data; these timestamps are {kind.value}",
            span_of(node),
            "add ORDER BY with a timestamp column",
        )


def bind_source(node: nodes.SourceClause | None) -> SourceSpec:
    if node is None:
        return SourceSpec()
    url = child(node, "url")
    if url is not None:
        if not url.name.strip():
            raise StatementError("this source is empty", span_of(url), "as in SOURCE 'tcp://localhost:4445'")
        return SourceSpec(url=url.name)
    options = tuple((o.this.name, _option_text(o)) for o in child(node, "options") or ())
    return SourceSpec(format=child(node, "format").name, options=options)


def _option_text(option: nodes.Option) -> str:
    value = child(option, "value")
    return str(value.this).lower() if isinstance(value, exp.Boolean) else str(value.name)


def bind_view(node: nodes.CreateView, context: Context) -> View:
    refuse_taken_name(node.this, context)
    query = bind_query(child(node, "query"), context)
    if not isinstance(query, RelationQuery):
        _check_finite(query, node)
    return View(node.this.name, query)


def _check_finite(query: Continuous, node: nodes.CreateView) -> None:
    """Check that a view over a stream reads only one window.

    A window is finite, so the view can be read at any time.
    """
    place = span_of(child(node, "query"))
    if isinstance(query, UnionQuery) or len(query.inputs) > 1 or query.aggregates or query.window_calls:
        raise StatementError(
            "a view over streams selects from one window",
            place,
            "make a CREATE STREAM of the rest, and the view over that",
        )
    entry = query.inputs[0]
    if entry.schema.changelog:
        raise StatementError(
            f"{entry.alias} is a changelog, and a view over a stream needs rows that do not change",
            place,
            f"make it a stream: CREATE STREAM {node.this.name} AS SELECT …; or look its rows up: "
            f"CREATE TABLE {node.this.name} AS MATERIALIZED {entry.alias}",
        )
    if query.coalesce is not None or entry.window is None or entry.window.extent is None:
        raise StatementError(
            f"a view over all of {entry.alias} would grow without a limit",
            place,
            f"give it a window: {entry.alias} [RANGE 1 HOUR]; or make it a CREATE STREAM",
        )
    if entry.window.slide is not None:
        raise StatementError("a view always has the current content of its window", place, "leave SLIDE out")
    if entry.window.frame is FrameUnit.ROWS and query.where is not None:
        raise StatementError(
            "a view with a ROWS window cannot have a WHERE clause",
            place,
            "make a CREATE STREAM with this WHERE, and the view over that; or use RANGE",
        )


def bind_named_query(node: nodes.CreateQuery, context: Context) -> QueryDefinition:
    refuse_taken_name(node.this, context)
    problems = ErrorCollector()
    options = QueryOptions()
    with problems.collect():
        options = query_options(child(node, "options") or [])
    query: Continuous | RelationQuery | None = None
    load, utility = None, None
    with problems.collect():
        query = bind_query(child(node, "query"), context)
        refuse_open_rank(query, child(node, "query"))
        check_sink(query, child(node, "options") or [])
        check_table_sink(query, child(node, "options") or [], context)
        query = with_budget(query, options.memory, options.shedding, node.this)
        load, utility = bind_load(query, options, context, node.this)
    retain_us = None
    with problems.collect():
        retain_us = retention_us(child(node, "retain"))
        if isinstance(query, RelationQuery) and retain_us is not None:
            raise StatementError(
                "an ad hoc query has no results to retain",
                span_of(child(node, "retain")),
                "leave RETAIN out, or read a stream",
            )
    begins_us = None
    with problems.collect():
        begins_us = beginning_us(child(node, "begins"), query, context.catalog)
    problems.raise_any()
    assert query is not None
    text = to_esl(child(node, "query"))
    found = QueryDefinition(node.this.name, query, options, text, load, utility, retain_us, begins_us)
    return with_writers(found, child(node, "query"), context)


def bind_bare_query(node: exp.Expression, context: Context) -> QueryDefinition:
    number = 1
    while f"query_{number}" in (*context.catalog.queries, *context.catalog.relations):
        number += 1
    query = bind_query(node, context)
    refuse_open_rank(query, node)
    return with_writers(
        QueryDefinition(f"query_{number}", query, QueryOptions(), to_esl(node)), node, context
    )


def query_options(option_nodes: list[nodes.Option]) -> QueryOptions:
    given: dict[str, str] = {}
    for option in option_nodes:
        name = option.this.name.lower()
        if name not in QUERY_OPTIONS:
            hint = did_you_mean(name, QUERY_OPTIONS) or f"the options are {one_of(QUERY_OPTIONS)}"
            raise StatementError(f"a query has no option {name}", span_of(option), hint)
        if name in given:
            raise StatementError(f"{name} is given twice", span_of(option))
        text = _option_text(option)
        if name == "weight":
            _check_weight(text, option)
        if name == "slo" and service_level(text) is None:
            raise StatementError(
                f"'{text}' is no service level",
                span_of(option),
                f"write it as in slo='p99 < 2 s', with {one_of(MEASURES)}",
            )
        if name == "memory" and not MEMORY.fullmatch(text.strip()):
            raise StatementError(
                f"'{text}' is no amount of memory", span_of(option), "write '500 tuples' or '64 MB'"
            )
        if name == "incomplete" and text.lower() not in (HIDDEN, SHOWN):
            raise StatementError(
                f"'{text}' is no way to treat incomplete windows",
                span_of(option),
                "write incomplete = 'show' for the rows of windows that began before the query, or 'hide'",
            )
        given[name] = text
    return QueryOptions(
        weight=float(given.get("weight", "1")),
        sink=given.get("sink"),
        slo=service_level(given["slo"]) if "slo" in given else None,
        memory=given.get("memory"),
        shedding=given.get("shedding"),
        lag=given.get("lag"),
        keep=given.get("keep"),
        utility=given.get("utility"),
        incomplete=given.get("incomplete", HIDDEN).lower(),
    )


def _check_weight(text: str, option: nodes.Option) -> None:
    try:
        positive = 0 < float(text) < float("inf")
    except ValueError:
        positive = False
    if not positive:
        raise StatementError("a weight is a number above 0", span_of(option), "the default is 1")


def bind_setting(node: nodes.SetOption, context: Context) -> Setting:
    name, value = node.this.name.lower(), child(node, "value")
    if name != "policy":
        hint = did_you_mean(name, ("policy",)) or "there is one setting, policy"
        raise StatementError(f"there is no setting {node.this.name}", span_of(node.this), hint)
    component = _component(node, context)
    if component is not None and value.name.lower() == DEFAULT_POLICY:
        return Setting(f"policy for {component}", DEFAULT_POLICY, component)
    try:
        policy = policy_named(value.name).name
        return Setting(name if component is None else f"policy for {component}", policy, component)
    except UnknownPolicyError as error:
        message, _, hint = str(error).partition("; ")
        raise StatementError(message, span_of(value), hint) from None


def _component(node: nodes.SetOption, context: Context) -> str | None:
    """Return the stream or query that `SET policy = … FOR name` names, or None without FOR.

    The policy applies to all queries connected with the named stream or query.
    """
    named = child(node, "component")
    if named is None:
        return None
    catalog, key = context.catalog, named.name.lower()
    known = {
        found.name.lower(): found.name
        for found in (*catalog.relations.values(), *catalog.queries.values())
        if isinstance(found, Stream | DerivedStream | ComputedStream)
        or (isinstance(found, QueryDefinition) and found.continuous)
    }
    if key not in known:
        if key in context.broken:
            raise BrokenDependency
        raise StatementError(
            f"there is no stream or continuous query {named.name}",
            span_of(named),
            did_you_mean(named.name, list(known.values())),
        )
    return known[key]


def bind_drop(node: nodes.DropObject, context: Context) -> list[DroppedName]:
    """Bind DROP: return the objects to drop, with dependent objects first."""
    kind, name = child(node, "kind"), node.this.name
    catalog = context.catalog
    found = _find_object(kind, name, catalog)
    if found is None and (found := _find_object(kind, name, context.kept())) is not None:
        catalog = context.kept()
    if found is None:
        if name.lower() in context.broken:
            raise BrokenDependency
        if child(node, "exists"):
            return []
        hint = did_you_mean(name, _object_names(kind, catalog))
        called = catalog.callable_named(name)
        if name.lower() in catalog.callables and called is not None:
            hint = f"it is a {called.kind.lower()}: DROP {called.kind}"
        elif called is not None and kind == called.kind:
            hint = f"everybody has it; a {kind.lower()} of your own by that name takes its place"
        raise StatementError(f"there is no {kind.lower()} {name}", span_of(node.this), hint)
    if isinstance(found, QueryDefinition):
        refuse_writer(found, node.this)
    dependants = [] if kind == "ALERT" else catalog.dependants(kind, name)
    if kind == "QUERY":  # a query is used only by materialized tables; a relation may have its name
        dependants = [one for one in dependants if isinstance(catalog.relation(one), Table)]
    if kind in ("QUERY", "STREAM"):
        dependants += [f"alert {alert}" for alert in catalog.alerts_on(found.name)]
    if dependants and not child(node, "cascade"):
        raise StatementError(
            f"{found.name} is used by {all_of(dependants)}",
            span_of(node.this),
            "drop these objects first, or add CASCADE, which drops them and all their users",
        )
    users = [*reversed(catalog.all_users(found)), found] if dependants else [found]
    dropped = [DroppedName(kind_of(user), user.name) for user in users]
    watched = [one.name for one in dropped if one.kind in ("QUERY", "STREAM")]
    alerts = dict.fromkeys(alert for name in watched for alert in catalog.alerts_on(name))
    return [*(DroppedName("ALERT", alert) for alert in alerts), *dropped[:-1], DroppedName(kind, found.name)]


def refuse_writer(query: QueryDefinition, identifier: exp.Identifier) -> None:
    """Raise if a query writes a table for another query.

    A query that writes a table for another query can only be dropped together with the other query.
    """
    if query.writes_for is not None:
        raise StatementError(
            f"{query.name} is what {query.writes_for} writes into a table, and is dropped with it",
            span_of(identifier),
            f"change or drop {query.writes_for}",
        )


def kind_of(statement: Statement) -> str:
    """Return the keyword for a statement's object in DROP, such as VIEW."""
    if isinstance(statement, QueryDefinition):
        return "QUERY"
    if isinstance(statement, Alert):
        return "ALERT"
    if isinstance(statement, AggregateDefinition):
        return "AGGREGATE" if statement.provider is None else statement.provider.kind
    if isinstance(statement, FunctionDefinition):
        return "FUNCTION"
    if isinstance(statement, CalledDefinition):
        return statement.kind
    assert isinstance(statement, (Stream, DerivedStream, ComputedStream, Table, View)), (
        "all others name nothing"
    )
    return kind_name(statement).upper()


def _find_object(kind: str, name: str, catalog: Catalog) -> Statement | None:
    """Return the object that a DROP statement names, or None."""
    called = catalog.callables.get(name.lower())
    if kind == "QUERY":
        return catalog.queries.get(name.lower())
    if kind == "FUNCTION":
        return catalog.functions.get(name.lower())
    if kind == "ALERT":
        return catalog.alerts.get(name.lower())
    if kind == "AGGREGATE":
        base, window = catalog.declared_versions(name) if called is None else (None, None)
        return base or window
    if kind in called_kinds():
        return called if called is not None and called.kind == kind else None
    relation = catalog.relation(name)
    return relation if relation is not None and kind_name(relation).upper() == kind else None


def _object_names(kind: str, catalog: Catalog) -> list[str]:
    if kind == "QUERY":
        return [query.name for query in catalog.queries.values()]
    if kind == "FUNCTION":
        return [function.name for function in catalog.functions.values()]
    if kind == "ALERT":
        return [alert.name for alert in catalog.alerts.values()]
    if kind == "AGGREGATE":
        defined = (*catalog.base_aggregates.values(), *catalog.window_aggregates.values())
        return [definition.name for definition in defined if definition.provider is None]
    if kind in called_kinds():
        return [one.name for one in catalog.callables.values() if one.kind == kind]
    return [r.name for r in catalog.relations.values() if kind_name(r).upper() == kind]


# Start positions: BEGIN of a stream and FROM of a query
#
# FROM is an error if past rows are not available.


def beginning_us(
    node: exp.Expression | None, query: Continuous | RelationQuery | None, catalog: Catalog
) -> int | None:
    """Return the start position of a query, given by its clause FROM BEGINNING, NOW or a time.

    FROM NOW is END. Return None without the clause, so that BEGIN of the query's streams determines the
    start.
    """
    if node is None:
        return None
    if isinstance(query, RelationQuery):
        raise StatementError(
            "an ad hoc query reads what tables hold now", span_of(node), "leave FROM out, or read a stream"
        )
    if node.name == "NOW" and isinstance(node, exp.Var):
        return END
    begins = BEGINNING
    if isinstance(node, exp.Literal):
        found = parse_timestamp(node.name)
        if found is None:
            raise StatementError(
                f"'{node.name}' is not a timestamp",
                span_of(node),
                "write it as in '2026-01-31 12:00:00', in UTC",
            )
        begins = found
        changing = sorted({one.name for one in _logs_read(query, catalog) if _has_changelog(one)})
        if changing:
            raise StatementError(
                f"rows of {all_of(changing)} change: a query over them begins with the table as it is",
                span_of(node),
                "leave FROM TIMESTAMP out",
            )
    read = [one for one in _logs_read(query, catalog) if not _has_changelog(one)]
    forgotten = sorted({one.name for one in read if not _can_be_read_again(one, catalog)})
    if forgotten:
        is_told = "is" if len(forgotten) == 1 else "are"
        declared = all_of(_streams_of_logs(forgotten, catalog))
        raise StatementError(
            f"{all_of(forgotten)} {is_told} not retained, so there is no past to begin in",
            span_of(node),
            f"declare {declared} with RETAIN, as in RETAIN 7 DAYS; or leave FROM out",
        )
    return begins


def stream_begin_us(node: exp.Expression | None, kind: TimestampKind) -> int | None:
    """Return the start position of a stream, given by its BEGIN clause.

    The result is BEGINNING, END (LATEST), a time, or None without the clause.
    """
    if node is None:
        return None
    if isinstance(node, exp.Var):
        return BEGINNING if node.name == "EARLIEST" else END
    found = parse_timestamp(node.name)
    if found is None:
        raise StatementError(
            f"'{node.name}' is not a timestamp",
            span_of(node),
            "write BEGIN EARLIEST, BEGIN LATEST, or BEGIN TIMESTAMP '2026-01-31 12:00:00', in UTC",
        )
    if kind is not TimestampKind.EXTERNAL:
        raise StatementError(
            "BEGIN with a time needs a timestamp column in the data",
            span_of(node),
            "write BEGIN EARLIEST or BEGIN LATEST, or add ORDER BY with a timestamp column",
        )
    return found


def _can_be_read_again(relation: Relation, catalog: Catalog) -> bool:
    """Return True if past rows are retained or can be recomputed.

    Rows can be recomputed if the source can be read again.
    """
    if isinstance(relation, (Stream, DerivedStream)) and relation.retain_us is not None:
        return True
    if isinstance(relation, Stream):
        return catalog.declared_stream(relation.name).has_past
    if isinstance(relation, DerivedStream):
        return all(
            _has_changelog(one) or _can_be_read_again(one, catalog)
            for one in _logs_read(relation.query, catalog)
        )
    return False


def _streams_of_logs(names: list[str], catalog: Catalog) -> list[str]:
    """Return the streams whose RETAIN clause applies to these logs.

    Late and bad rows are retained as long as the rows of their stream.
    """
    owners = {name: catalog.owner_of(name) for name in names}
    return sorted({name if (owner := owners[name]) is None else owner.name for name in names})


def _has_changelog(relation: Relation) -> bool:
    return isinstance(relation, DerivedStream) and relation.schema.changelog


def _logs_read(query: Continuous | RelationQuery | None, catalog: Catalog) -> Iterator[Relation]:
    """Yield the streams that a query reads, directly or through views."""
    for name in relations_of(query) if query is not None else ():
        relation = catalog.relation(name)
        if isinstance(relation, View):
            yield from _logs_read(relation.query, catalog)
        elif relation is not None and not isinstance(relation, Table):
            yield relation

"""Binder of CREATE ALERT: watched query or stream, condition and webhook."""

from __future__ import annotations

from urllib.parse import urlsplit

from sqlglot import exp

from slicemill.binder.context import BrokenDependency, Context, ErrorCollector
from slicemill.binder.environments import SelectEnvironment
from slicemill.binder.expressions import bind_condition
from slicemill.binder.scope import Scope
from slicemill.binder.windows import duration_us
from slicemill.catalog.alert import FIGURES, Alert, AlertSubject
from slicemill.catalog.catalog import DerivedStream, Stream
from slicemill.errors import did_you_mean, one_of
from slicemill.sql import nodes
from slicemill.sql.dialect import to_esl
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of

_SCHEMES = ("http", "https")


def bind_alert(node: nodes.CreateAlert, context: Context) -> Alert:
    known = context.catalog.alerts.get(node.this.name.lower())
    if known is not None:
        raise StatementError(
            f"there is an alert {known.name} already",
            span_of(node.this),
            f"choose another name, or DROP ALERT {known.name} first",
        )
    problems = ErrorCollector()
    with problems.collect():
        check_webhook(child(node, "webhook"))
    watched, target = AlertSubject.QUERY, None
    with problems.collect():
        watched, target = _target(node, context)
    problems.raise_any()
    url, when = child(node, "webhook").name, child(node, "when")
    if when is None:
        return Alert(node.this.name, watched, target, url)
    environment = SelectEnvironment(
        context, Scope(((str(watched), FIGURES[watched]),), qualified=False), place="WHEN of an alert"
    )
    condition = bind_condition(when, environment)
    held, repeat = child(node, "held"), child(node, "repeat")
    return Alert(
        node.this.name,
        watched,
        target,
        url,
        condition,
        to_esl(when),
        0 if held is None else _length(held, "FOR"),
        None if repeat is None else _length(repeat, "REPEAT EVERY"),
    )


def _target(node: nodes.CreateAlert, context: Context) -> tuple[AlertSubject, str | None]:
    rows = child(node, "when") is None
    every = child(node, "any")
    if every is not None:
        if rows:
            raise StatementError(
                "an alert on rows needs one query",
                span_of(node.this),
                "name the query; or say WHEN, as in WHEN state = 'failed'",
            )
        return AlertSubject(every.lower()), None
    named = child(node, "on")
    query = context.catalog.queries.get(named.name.lower())
    if query is not None and query.continuous:
        return AlertSubject.QUERY, query.name
    stream = context.catalog.relations.get(named.name.lower())
    if isinstance(stream, Stream):
        if rows:
            raise StatementError(
                f"{stream.name} is a stream, and an alert on rows needs a query",
                span_of(named),
                f"CREATE QUERY all_of_{stream.name} AS SELECT * FROM {stream.name} first; or say WHEN",
            )
        return AlertSubject.STREAM, stream.name
    if query is None and stream is None and named.name.lower() in context.broken:
        raise BrokenDependency
    raise _unwatchable_target(named, context)


def _unwatchable_target(named: exp.Identifier, context: Context) -> StatementError:
    context.refuse_later(named.name, span_of(named))
    catalog = context.catalog
    found = catalog.queries.get(named.name.lower()) or catalog.relation(named.name)
    if found is None:
        queries = [query.name for query in catalog.queries.values() if query.continuous]
        streams = [one.name for one in catalog.relations.values() if isinstance(one, Stream)]
        hint = did_you_mean(named.name, [*queries, *streams]) or "SHOW QUERIES lists them"
        return StatementError(f"there is no query or stream {named.name}", span_of(named), hint)
    made = isinstance(found, DerivedStream)
    why = "is made by a query" if made else "is only there when it is asked"
    return StatementError(
        f"{found.name} {why}; an alert is on a query or a declared stream",
        span_of(named),
        f"CREATE QUERY all_of_{found.name} AS SELECT * FROM {found.name} first" if made else "",
    )


def _length(node: nodes.Duration, word: str) -> int:
    length = duration_us(node)
    if length <= 0:
        raise StatementError(f"{word} needs a length of time above 0", span_of(node))
    return length


def check_webhook(node: exp.Expression) -> None:
    """Raise StatementError unless the webhook is an HTTP URL without a password."""
    try:
        parts = urlsplit(node.name)
        host, _ = parts.hostname, parts.port
    except ValueError as problem:
        raise StatementError(f"'{node.name}' is no address: {problem}", span_of(node)) from None
    if parts.scheme.lower() not in _SCHEMES or not host or not node.name.isascii() or " " in node.name:
        raise StatementError(
            f"'{node.name}' is no address of a webhook",
            span_of(node),
            f"it begins with {one_of([f'{scheme}://' for scheme in _SCHEMES])} and a host",
        )
    if parts.username is not None:
        raise StatementError(
            "an address with a password shows the password to all users who can read the statement",
            span_of(node),
            "leave user and password out",
        )

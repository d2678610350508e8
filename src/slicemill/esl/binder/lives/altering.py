"""Bind ALTER QUERY … SET: options that do not affect the computation."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.binder.changing.changelogs import check_sink
from slicemill.esl.binder.changing.table_sinks import check_table_sink
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.definitions import (
    QUERY_OPTIONS,
    query_options,
    refuse_writer,
    retention_us,
)
from slicemill.esl.binder.lives.steering import running
from slicemill.esl.binder.problems import Problems
from slicemill.esl.syntax import nodes
from slicemill.esl.syntax.cursor import Cursor
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.grammar.windows import duration
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.syntax.tokens import tokenize
from slicemill.esl.types.catalog import AlteredQuery, QueryDefinition, QueryOptions

RETAIN = "retain"
ALTERABLE = ("weight", "slo", "sink", RETAIN)


def bind_alter(node: nodes.AlterQuery, context: Context) -> AlteredQuery:
    before = running("QUERY", node.this, context)
    assert isinstance(before, QueryDefinition), "that is its kind"
    refuse_writer(before, node.this)
    after, given, problems = before, set[str](), Problems()
    for option in child(node, "options"):
        with problems.noting():
            name = option.this.name.lower()
            if name in given:
                raise Mistake(f"{name} is given twice", span_of(option), "keep one of the two")
            given.add(name)
            after = _altered(after, name, option, context)
    problems.raise_any()
    return AlteredQuery(before, after)


def _altered(query: QueryDefinition, name: str, option: nodes.Option, context: Context) -> QueryDefinition:
    if name in QUERY_OPTIONS and name not in ALTERABLE:
        raise Mistake(
            f"{name} is a part of what {query.name} computes",
            span_of(option),
            f"write CREATE OR REPLACE QUERY {query.name} WITH ({name} = …) AS …",
        )
    if name not in ALTERABLE:
        hint = did_you_mean(name, ALTERABLE) or f"what can be altered is {one_of(ALTERABLE)}"
        raise Mistake(f"a query has no option {option.this.name}", span_of(option), hint)
    cleared = isinstance(child(option, "value"), exp.Null)
    if name == RETAIN:
        return replace(query, retain_us=None if cleared else _retained_us(option))
    value = getattr(QueryOptions() if cleared else query_options([option]), name)
    if name == "weight" and query.load is not None and value != query.options.weight:
        raise Mistake(
            f"the weight of {query.name} is a part of what it computes: it says what is dropped under load",
            span_of(option),
            f"write CREATE OR REPLACE QUERY {query.name} WITH (weight = …, …) AS …",
        )
    if name == "sink" and query.schema.changelog and query.options.sink not in (None, value):
        raise Mistake(
            f"results of {query.name} change, and another sink would lack the rows from before",
            span_of(option),
            f"DROP QUERY {query.name}, and CREATE it with this sink",
        )
    if name == "sink" and query.options.table is not None and value != query.options.sink:
        raise Mistake(
            f"{query.options.table} has rows of {query.name}, and would get no more",
            span_of(option),
            f"DROP QUERY {query.name}, and CREATE it with this sink",
        )
    if name == "sink":
        check_sink(query.query, [option])
        check_table_sink(query.query, [option], context)
    return replace(query, options=replace(query.options, **{name: value}))


def _retained_us(option: nodes.Option) -> int:
    text = child(option, "value").name
    try:
        c = Cursor(tokenize(text), text)
        length = retention_us(duration(c))
        if length is not None and c.done:
            return length
    except Mistake:
        pass  # the error below has the span in the statement
    raise Mistake(
        f"'{text}' is no length of time", span_of(child(option, "value")), "write retain = '7 days', or NULL"
    )

"""Bind `WITH (lag = …, memory = …, shedding = …, utility = …, keep = …)`: load shedding of a query."""

from __future__ import annotations

import re

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.binder.context import Context
from slicemill.esl.binder.limits.budgets import BYTES, MEMORY, check_size
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.queries import bind_query
from slicemill.esl.syntax.dialect import parse
from slicemill.esl.syntax.errors import EslError, Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.catalog import QueryOptions
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.load_budget import AGE, METHODS, RANDOM, UTILITY, WINDOWS, LoadBudget
from slicemill.esl.types.query import Continuous, FrameUnit, JoinKind, SelectQuery
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Kind
from slicemill.time import UNITS_US, unit_name

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.BOOLEAN)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def bind_load(
    query: Continuous | RelationQuery, options: QueryOptions, context: Context, place: exp.Expression
) -> tuple[LoadBudget | None, Expr | None]:
    """Return the load-shedding budget and utility of a query, if any."""
    # The memory and shedding of a temporal query are bound in `budgets`.
    temporal = isinstance(query, SelectQuery) and query.coalesce is not None
    memory, shedding = (None, None) if temporal else (options.memory, options.shedding)
    given = {"lag": options.lag, "memory": memory, "shedding": shedding}
    given |= {"utility": options.utility, "keep": options.keep}
    wanted = [name for name, text in given.items() if text is not None]
    if not wanted:
        return None, None
    if isinstance(query, RelationQuery):
        raise Mistake("only continuous queries have a load", span_of(place), f"leave {wanted[0]} out")
    if options.lag is None and memory is None:
        raise Mistake(
            "nothing is dropped without a budget",
            span_of(place),
            "say how far the query may fall behind, as in lag = '2 s', or what it may keep: memory = '64 MB'",
        )
    utility = _utility(query, options.utility, context, place) if options.utility is not None else None
    budget = LoadBudget(
        lag_us=lag_us(options.lag, place) if options.lag is not None else None,
        memory=_bytes(memory, place) if memory is not None else None,
        method=_method(query, shedding, utility, place),
        least=_least(options.keep or "0", place),
    )
    return budget, utility


def lag_us(text: str, place: exp.Expression) -> int:
    """Return the maximum lag in microseconds."""
    match = _DURATION.fullmatch(text)
    unit = unit_name(match[2]) if match else None
    if match is None or unit not in UNITS_US or float(match[1]) == 0:
        raise Mistake(f"'{text}' is no length of time", span_of(place), "write lag = '2 s'")
    return round(float(match[1]) * UNITS_US[unit])


def _bytes(text: str, place: exp.Expression) -> int:
    match = MEMORY.fullmatch(text.strip())
    assert match is not None, "the options are checked before the query"
    unit = match[2].lower()
    if unit not in BYTES or int(match[1]) == 0:
        raise Mistake(
            "the memory of a query that is not temporal is counted in bytes",
            span_of(place),
            "write memory = '64 MB'",
        )
    size = int(match[1]) * BYTES[unit]
    check_size(text, size, place)
    return size


def _least(text: str, place: exp.Expression) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise Mistake(
            f"'{text}' is no share", span_of(place), "keep is the share that stays at least: keep = 0.2"
        )
    return share


def _method(query: Continuous, given: str | None, utility: Expr | None, place: exp.Expression) -> str:
    method = (given or (UTILITY if utility is not None else RANDOM)).lower()
    if method not in METHODS:
        hint = did_you_mean(method, tuple(METHODS)) or f"the ways are {one_of(tuple(METHODS))}"
        raise Mistake(f"there is no way of shedding '{given}'", span_of(place), hint)
    if (method == UTILITY) != (utility is not None):
        missing = "shedding by utility needs to know it"
        unused = f"shedding '{method}' has no use for a utility"
        raise Mistake(
            missing if method == UTILITY else unused,
            span_of(place),
            "as in shedding = 'utility', utility = 'price'",
        )
    if method == WINDOWS and not _has_sliding_groups(query):
        raise Mistake(
            "whole windows are for aggregates over one window that slides",
            span_of(place),
            "as in SELECT k, count(*) FROM S [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY k",
        )
    if method == AGE and not _is_join(query):
        raise Mistake(
            "the age of a pair is for joins of two streams, or of more over windows of time",
            span_of(place),
            f"choose another way: {one_of([name for name in METHODS if name != AGE])}",
        )
    return method


def _has_sliding_groups(query: Continuous) -> bool:
    if not isinstance(query, SelectQuery) or len(query.inputs) != 1 or not query.aggregates or query.running:
        return False
    window = query.inputs[0].window
    return (
        window is not None
        and window.frame is FrameUnit.RANGE
        and window.slide is not None
        and bool(window.extent)
        and query.inputs[0].relation is not None
    )


def _is_join(query: Continuous) -> bool:
    """Return True for a join that can shed pairs by age.

    Outer joins are excluded, because shed rows would look like rows without a match. Joins of three or more
    streams need time windows, because rows of windows that count rows have no age.
    """
    if not isinstance(query, SelectQuery):
        return False
    streams = [entry for entry in query.inputs if not entry.finite]
    windows = [entry.window for entry in streams]
    timed = all(window is not None and window.frame is FrameUnit.RANGE for window in windows)
    inner = all(entry.kind is JoinKind.INNER and entry.as_of is None for entry in streams)
    return inner and (len(streams) == 2 or (len(streams) > 2 and timed))


def _utility(query: Continuous, text: str, context: Context, place: exp.Expression) -> Expr:
    """Bind the utility like a select item over the same stream."""
    entry = query.inputs[0] if isinstance(query, SelectQuery) else None
    if entry is None or entry.relation is None or not isinstance(query, SelectQuery) or len(query.inputs) > 1:
        raise Mistake("utility is that of one stream's tuples", span_of(place), "leave utility out")
    script = f'SELECT {text} AS utility FROM "{entry.relation}" AS "{entry.alias}"'
    problems = Problems()
    found = None
    try:
        with problems.noting():
            found = bind_query(parse(script)[0], context)
    except EslError as error:
        problems.diagnostics.extend(error.diagnostics)
    if problems.diagnostics:
        first = problems.diagnostics[0]
        raise Mistake(f"utility '{text}': {first.message}", span_of(place), first.hint)
    if isinstance(found, SelectQuery) and not found.aggregates and not found.window_calls:
        expr = found.items[0].expr
        if expr.type.kind in _NUMBERS:
            return expr
    raise Mistake(
        f"utility '{text}' is no number",
        span_of(place),
        "give a number, more for tuples to keep, or a condition that is true for them",
    )

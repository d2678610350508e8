"""Binder of load-shedding options: memory budget, lag, shedding method (L14).

A temporal query merges successive tuples with equal values to a run (value run), which is one result row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from slicemill.binder.context import Context, ErrorCollector
from slicemill.binder.queries import bind_query
from slicemill.catalog.catalog import QueryOptions
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal, conjuncts
from slicemill.catalog.queries import (
    AGE,
    DEFAULT,
    LOAD_SHEDDING_METHODS,
    RANDOM,
    UTILITY,
    WINDOWS,
    Budget,
    Continuous,
    FrameUnit,
    JoinKind,
    LoadBudget,
    RelationQuery,
    SelectQuery,
    Slot,
    TemporalQuery,
    budget_bytes,
)
from slicemill.errors import did_you_mean, one_of
from slicemill.shedding.methods import METHODS
from slicemill.sql.dialect import parse
from slicemill.sql.errors import EslError, StatementError
from slicemill.sql.nodes import span_of
from slicemill.time import UNITS_US, unit_name
from slicemill.types import Column, Kind

MEMORY = re.compile(r"(\d+)\s*(tuples?|runs?|b|kb|mb|gb|kib|mib|gib)", re.IGNORECASE)
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
# Shedding methods with two weights: the cost of an additional result row, and the cost of lost time.
WEIGHED = ("lookahead", "exact", "cals", "threshold")
WEIGHTS = re.compile(r"(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*\)")
_MOST_BYTES = 2**63 - 1

_WIDTHS = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.DATE: 4, Kind.MONTHS: 4, Kind.DECIMAL: 16, Kind.PERIOD: 16}
_WIDTH = 8
_TEXT = 32


def with_budget(
    query: Continuous | RelationQuery, memory: str | None, method: str | None, place: exp.Expression
) -> Continuous | RelationQuery:
    """Add the memory budget of the query options to a temporal query."""
    if not isinstance(query, SelectQuery) or query.coalesce is None:
        return query
    weights: tuple[float, float] | None = None
    if method is not None:
        method, weights = _split_weights(method, place)
        _check_method(method, memory, place)
    if memory is None:
        return query
    if query.coalesce.late is not None:
        raise StatementError(
            "with a memory budget, tuples that a late tuple would correct may have been dropped",
            span_of(place),
            "leave LATE out, or the memory; with SLACK, late tuples are sorted before the query reads them",
        )
    budget = _budget(query.coalesce, memory, method, place, weights)
    return replace(query, coalesce=replace(query.coalesce, budget=budget))


def _split_weights(text: str, place: exp.Expression) -> tuple[str, tuple[float, float] | None]:
    """Split a shedding method with weights, such as 'lookahead(2, 1)' (L17)."""
    name, bracket, inside = text.partition("(")
    if not bracket:
        return text, None
    numbers = WEIGHTS.fullmatch(inside.strip())
    weights = (float(numbers[1]), float(numbers[2])) if numbers is not None else (0.0, 0.0)
    if not max(weights):
        raise StatementError(
            f"'{text}' does not have two weights",
            span_of(place),
            f"write the costs of an additional result and of lost time: '{name.strip()}(2, 1)'",
        )
    if name.strip() not in WEIGHED:
        raise StatementError(
            f"'{name.strip()}' has no weights",
            span_of(place),
            f"{one_of(WEIGHED)} have weights, with the defaults 1 and 1",
        )
    return name.strip(), weights


def _check_method(method: str, memory: str | None, place: exp.Expression) -> None:
    if method not in METHODS:
        hint = did_you_mean(method, tuple(METHODS)) or f"the ways are {one_of(tuple(METHODS))}"
        raise StatementError(f"there is no shedding method '{method}'", span_of(place), hint)
    if memory is None:
        raise StatementError(
            "shedding needs a budget",
            span_of(place),
            f"write the memory to use: memory = '500 tuples', shedding = '{method}'",
        )


def _budget(
    coalesce: TemporalQuery,
    memory: str,
    method: str | None,
    place: exp.Expression,
    weights: tuple[float, float] | None,
) -> Budget:
    match = MEMORY.fullmatch(memory.strip())
    assert match is not None, "the options are checked before the query"
    amount, unit = int(match[1]), match[2].lower()
    slot = Slot.RUNS if unit.startswith("run") else Slot.TUPLES
    if slot is Slot.RUNS and coalesce.window.frame is FrameUnit.ROWS:
        raise StatementError(
            "a window that counts tuples keeps tuples, not runs",
            span_of(place),
            f"write memory = '{amount} tuples', or let the window be of time",
        )
    if slot is Slot.RUNS and method is not None:
        raise StatementError(
            "if memory counts runs, the shortest run is dropped first",
            span_of(place),
            f"leave shedding out, or write memory = '{amount} tuples'",
        )
    threshold = least_duration(coalesce.after)
    if method == "threshold" and threshold is None:
        raise StatementError(
            "shedding = 'threshold' needs a minimum duration",
            span_of(place),
            "as in WHERE CAST(VALID(S) AS INTERVAL MINUTE) >= 3",
        )
    if method is None:
        # If WHERE requires a minimum duration, the default method is `threshold`.
        # Another method may shorten a result row below the minimum duration, so that WHERE drops the row.
        method = DEFAULT if threshold is None or slot is Slot.RUNS else "threshold"
    by_rows = coalesce.window.frame is FrameUnit.ROWS
    least = threshold if method == "threshold" else None
    budget = Budget(amount, slot, method, least, by_rows, weights)
    each = tuple_bytes(coalesce, budget)
    if unit in BYTES:
        budget = replace(budget, capacity=amount * BYTES[unit] // each)
    check_size(memory, budget.capacity * each, place)
    if budget.capacity == 0:
        raise StatementError(
            "this memory is too small for a tuple",
            span_of(place),
            f"a tuple takes {each} bytes" if unit in BYTES else "write memory = '1 tuple' or more",
        )
    return budget


def check_size(memory: str, size: int, place: exp.Expression) -> None:
    """Reject a budget that exceeds 64 bits.

    A budget of this size is probably a typing error, because it would have no effect.
    """
    if size > _MOST_BYTES:
        raise StatementError(
            f"'{memory}' is more memory than any machine has",
            span_of(place),
            "write what the query may take of this machine, as in memory = '64 MB'",
        )


def tuple_bytes(coalesce: TemporalQuery, budget: Budget) -> int:
    """Return the size in bytes of a stored tuple.

    In columnar state, a VARCHAR has its declared length, but at most 32 bytes.
    """
    shown = {column.name: column for column in coalesce.schema}
    values = sum(_width(shown[name]) for name in coalesce.attributes)
    # It is estimated that an eighth of the stored runs have a copy of the values.
    return budget_bytes(budget) + (values + values // 8 + 1 if budget.compiled else 0)


def _width(column: Column) -> int:
    if column.type.kind in (Kind.VARCHAR, Kind.BINARY):
        return min(column.type.length or _TEXT, _TEXT)
    return _WIDTHS.get(column.type.kind, _WIDTH)


def least_duration(after: Expr | None) -> int | None:
    """Return the minimum duration of result rows that a WHERE condition requires, or None.

    The duration is that of VALID(S), in microseconds.
    """
    return max((found for part in conjuncts(after) for found in _durations(part)), default=None)


def _durations(part: Expr) -> Iterator[int]:
    if not isinstance(part, Call) or part.function not in (">=", ">", "<=", "<", "="):
        return
    left, right = part.arguments
    function = part.function
    if isinstance(left, Literal):
        left, right = right, left
        function = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(function, function)
    if not (isinstance(left, Call) and left.function == "whole_units" and isinstance(right, Literal)):
        return
    period, unit = left.arguments
    if isinstance(period, ColumnRef) and isinstance(unit, Literal) and isinstance(right.value, int):
        # Durations are compared in whole units, so `> 3` minutes means at least 4 minutes.
        if function in (">=", "="):
            yield right.value * int(str(unit.value))
        elif function == ">":
            yield (right.value + 1) * int(str(unit.value))


# WITH (lag = …, memory = …, shedding = …, utility = …, keep = …): load shedding of a query


_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL, Kind.BOOLEAN)
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


def bind_load(
    query: Continuous | RelationQuery, options: QueryOptions, context: Context, place: exp.Expression
) -> tuple[LoadBudget | None, Expr | None]:
    """Return the load-shedding budget and utility of a query, if any."""
    # `with_budget` binds the memory and shedding options of a temporal query.
    temporal = isinstance(query, SelectQuery) and query.coalesce is not None
    memory, shedding = (None, None) if temporal else (options.memory, options.shedding)
    given = {"lag": options.lag, "memory": memory, "shedding": shedding}
    given |= {"utility": options.utility, "keep": options.keep}
    wanted = [name for name, text in given.items() if text is not None]
    if not wanted:
        return None, None
    if isinstance(query, RelationQuery):
        raise StatementError(
            "load shedding is only for continuous queries", span_of(place), f"leave {wanted[0]} out"
        )
    if options.lag is None and memory is None:
        raise StatementError(
            "shedding needs a budget",
            span_of(place),
            "write the maximum lag, as in lag = '2 s', or the memory to use: memory = '64 MB'",
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
    """Return the maximum lag in the option `lag`, in microseconds."""
    match = _DURATION.fullmatch(text)
    unit = unit_name(match[2]) if match else None
    if match is None or unit not in UNITS_US or float(match[1]) == 0:
        raise StatementError(f"'{text}' is not a duration", span_of(place), "write lag = '2 s'")
    return round(float(match[1]) * UNITS_US[unit])


def _bytes(text: str, place: exp.Expression) -> int:
    match = MEMORY.fullmatch(text.strip())
    assert match is not None, "the options are checked before the query"
    unit = match[2].lower()
    if unit not in BYTES or int(match[1]) == 0:
        raise StatementError(
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
        raise StatementError(
            f"'{text}' is no share",
            span_of(place),
            "keep is the minimum share of tuples to process: keep = 0.2",
        )
    return share


def _method(query: Continuous, given: str | None, utility: Expr | None, place: exp.Expression) -> str:
    method = (given or (UTILITY if utility is not None else RANDOM)).lower()
    if method not in LOAD_SHEDDING_METHODS:
        hint = (
            did_you_mean(method, tuple(LOAD_SHEDDING_METHODS))
            or f"the ways are {one_of(tuple(LOAD_SHEDDING_METHODS))}"
        )
        raise StatementError(f"there is no shedding method '{given}'", span_of(place), hint)
    if (method == UTILITY) != (utility is not None):
        missing = "shedding by utility needs to know it"
        unused = f"shedding '{method}' has no use for a utility"
        raise StatementError(
            missing if method == UTILITY else unused,
            span_of(place),
            "as in shedding = 'utility', utility = 'price'",
        )
    if method == WINDOWS and not _has_sliding_groups(query):
        raise StatementError(
            "shedding whole windows needs an aggregate over one sliding window",
            span_of(place),
            "as in SELECT k, count(*) FROM S [RANGE 60 SECONDS SLIDE 10 SECONDS] GROUP BY k",
        )
    if method == AGE and not _is_join(query):
        raise StatementError(
            "shedding by age needs a join of two streams, or of more streams with windows of time",
            span_of(place),
            f"choose another way: {one_of([name for name in LOAD_SHEDDING_METHODS if name != AGE])}",
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
    """Return True for a join that can shed pairs of rows by age.

    Outer joins are excluded, because shed rows would look like rows without a match. Joins of three or more
    streams need time windows, because rows in ROWS windows have no age.
    """
    if not isinstance(query, SelectQuery):
        return False
    streams = [entry for entry in query.inputs if not entry.finite]
    windows = [entry.window for entry in streams]
    timed = all(window is not None and window.frame is FrameUnit.RANGE for window in windows)
    inner = all(entry.kind is JoinKind.INNER and entry.as_of is None for entry in streams)
    return inner and (len(streams) == 2 or (len(streams) > 2 and timed))


def _utility(query: Continuous, text: str, context: Context, place: exp.Expression) -> Expr:
    """Bind the utility expression as a select item over the query's stream."""
    entry = query.inputs[0] if isinstance(query, SelectQuery) else None
    if entry is None or entry.relation is None or not isinstance(query, SelectQuery) or len(query.inputs) > 1:
        raise StatementError(
            "utility needs a query over a single stream", span_of(place), "leave utility out"
        )
    script = f'SELECT {text} AS utility FROM "{entry.relation}" AS "{entry.alias}"'
    problems = ErrorCollector()
    found = None
    try:
        with problems.collect():
            found = bind_query(parse(script)[0], context)
    except EslError as error:
        problems.diagnostics.extend(error.diagnostics)
    if problems.diagnostics:
        first = problems.diagnostics[0]
        raise StatementError(f"utility '{text}': {first.message}", span_of(place), first.hint)
    if isinstance(found, SelectQuery) and not found.aggregates and not found.window_calls:
        expr = found.items[0].expr
        if expr.type.kind in _NUMBERS:
            return expr
    raise StatementError(
        f"utility '{text}' is no number",
        span_of(place),
        "give a number, more for tuples to keep, or a condition that is true for them",
    )

"""Bind `WITH (memory = …, shedding = …)` of a temporal query: its memory and shedding policy (L14)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from slicemill.errors import did_you_mean, one_of
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.budget import DEFAULT, Budget, Slot, budget_bytes
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal, conjuncts
from slicemill.esl.types.query import Continuous, FrameUnit, SelectQuery, TemporalQuery
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Column, Kind
from slicemill.shedding.methods import METHODS

MEMORY = re.compile(r"(\d+)\s*(tuples?|runs?|b|kb|mb|gb|kib|mib|gib)", re.IGNORECASE)
BYTES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
# Shedding methods that weigh false results against lost duration.
WEIGHED = ("lookahead", "exact", "cals", "threshold")
WEIGHTS = re.compile(r"(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)\s*\)")
_MOST_BYTES = 2**63 - 1

_WIDTHS = {Kind.BOOLEAN: 1, Kind.INT: 4, Kind.DATE: 4, Kind.MONTHS: 4, Kind.DECIMAL: 16, Kind.PERIOD: 16}
_WIDTH = 8
_TEXT = 32


def with_budget(
    query: Continuous | RelationQuery, memory: str | None, method: str | None, place: exp.Expression
) -> Continuous | RelationQuery:
    """Add the memory budget to a temporal query."""
    if not isinstance(query, SelectQuery) or query.coalesce is None:
        return query
    weights: tuple[float, float] | None = None
    if method is not None:
        method, weights = _weighed(method, place)
        _check_method(method, memory, place)
    if memory is None:
        return query
    if query.coalesce.late is not None:
        raise Mistake(
            "with a budget, what a late tuple would correct may be gone",
            span_of(place),
            "leave LATE out, or the memory; with SLACK tuples are put in order before they get here",
        )
    budget = _budget(query.coalesce, memory, method, place, weights)
    return replace(query, coalesce=replace(query.coalesce, budget=budget))


def _weighed(text: str, place: exp.Expression) -> tuple[str, tuple[float, float] | None]:
    """Split a shedding method and its weights: 'lookahead(2, 1)' (L17)."""
    name, bracket, inside = text.partition("(")
    if not bracket:
        return text, None
    numbers = WEIGHTS.fullmatch(inside.strip())
    weights = (float(numbers[1]), float(numbers[2])) if numbers is not None else (0.0, 0.0)
    if not max(weights):
        raise Mistake(
            f"'{text}' has no two weights",
            span_of(place),
            f"write what a result too many costs, and lost time: '{name.strip()}(2, 1)'; not both are 0",
        )
    if name.strip() not in WEIGHED:
        raise Mistake(
            f"'{name.strip()}' has no weights", span_of(place), f"{one_of(WEIGHED)} have, and weigh 1 and 1"
        )
    return name.strip(), weights


def _check_method(method: str, memory: str | None, place: exp.Expression) -> None:
    if method not in METHODS:
        hint = did_you_mean(method, tuple(METHODS)) or f"the ways are {one_of(tuple(METHODS))}"
        raise Mistake(f"there is no way of shedding '{method}'", span_of(place), hint)
    if memory is None:
        raise Mistake(
            "nothing is dropped without a budget",
            span_of(place),
            f"say how much may be kept: memory = '500 tuples', shedding = '{method}'",
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
        raise Mistake(
            "a window that counts tuples keeps tuples, not runs",
            span_of(place),
            f"write memory = '{amount} tuples', or let the window be of time",
        )
    if slot is Slot.RUNS and method is not None:
        raise Mistake(
            "where memory counts runs, the shortest run goes first",
            span_of(place),
            f"leave shedding out, or write memory = '{amount} tuples'",
        )
    threshold = least_duration(coalesce.after)
    if method == "threshold" and threshold is None:
        raise Mistake(
            "shedding by threshold needs a least duration",
            span_of(place),
            "as in WHERE CAST(VALID(S) AS INTERVAL MINUTE) >= 3",
        )
    if method is None:
        # Other methods would shorten long runs below the least duration, which loses whole results.
        method = DEFAULT if threshold is None or slot is Slot.RUNS else "threshold"
    by_rows = coalesce.window.frame is FrameUnit.ROWS
    least = threshold if method == "threshold" else None
    budget = Budget(amount, slot, method, least, by_rows, weights)
    each = tuple_bytes(coalesce, budget)
    if unit in BYTES:
        budget = replace(budget, capacity=amount * BYTES[unit] // each)
    check_size(memory, budget.capacity * each, place)
    if budget.capacity == 0:
        raise Mistake(
            "this memory holds nothing",
            span_of(place),
            f"a tuple takes {each} bytes" if unit in BYTES else "give it a tuple at least",
        )
    return budget


def check_size(memory: str, size: int, place: exp.Expression) -> None:
    """Reject a budget that exceeds 64 bits.

    Such a budget is a typing error and would limit nothing.
    """
    if size > _MOST_BYTES:
        raise Mistake(
            f"'{memory}' is more memory than there can be",
            span_of(place),
            "write what the query may take of this machine, as in memory = '64 MB'",
        )


def tuple_bytes(coalesce: TemporalQuery, budget: Budget) -> int:
    """Return the bytes of a kept tuple.

    In columnar state a text counts its declared length, at most 32.
    """
    shown = {column.name: column for column in coalesce.schema}
    values = sum(_width(shown[name]) for name in coalesce.attributes)
    # Estimate: every eighth kept run stores a value of its own.
    return budget_bytes(budget) + (values + values // 8 + 1 if budget.compiled else 0)


def _width(column: Column) -> int:
    if column.type.kind in (Kind.VARCHAR, Kind.BINARY):
        return min(column.type.length or _TEXT, _TEXT)
    return _WIDTHS.get(column.type.kind, _WIDTH)


def least_duration(after: Expr | None) -> int | None:
    """Return the longest duration, in microseconds, that every run must have."""
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
        # Durations are compared in whole units, so > 3 minutes means at least 4 minutes.
        if function in (">=", "="):
            yield right.value * int(str(unit.value))
        elif function == ">":
            yield (right.value + 1) * int(str(unit.value))

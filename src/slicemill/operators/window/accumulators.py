"""Accumulators of aggregate calls, and takeover of accumulators by a changed query.

When a query is replaced, its calls take over the accumulators of the former calls:

    sum(v), count(*)              former calls: accumulators 0 and 1
    avg(v), count(*), sum(v)      new calls take over 0, 1 and 0, because a sum is stored with its count
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TypeAlias

from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.types import Kind

Call: TypeAlias = AggregateCall | WindowCall

_INTEGERS = (Kind.INT, Kind.BIGINT)
_NUMBERS = (*_INTEGERS, Kind.DOUBLE, Kind.DECIMAL)
_ORDERED = (*_INTEGERS, Kind.TIMESTAMP, Kind.DATE)
_WITHOUT_KERNEL = (Kind.ANY, Kind.NULL, Kind.PERIOD)
_SUMS = ("sum", "avg", "mean")
_SQUARES = ("variance", "var_samp", "var_pop", "stddev", "stddev_samp", "stddev_pop")
# The state of these aggregates is numbered by calls, or counts all tuples since the start.
_NOT_BY_COLUMN = ("priority_sample", "approx_count", "approx_count_if")


class Accumulator(StrEnum):
    """Kind of a running aggregate (`window.running`)."""

    COUNT = "count"
    DISTINCT = "distinct values"
    SUM = "sum of integers"
    MOMENTS = "sums of powers"
    EXTREME = "minimum or maximum"


def accumulator_of(call: Call) -> Accumulator | None:
    """Return the kind of a call's accumulator, or None."""
    name, kinds = call.name.lower(), [argument.type.kind for argument in call.arguments]
    if name == "count":
        return Accumulator.DISTINCT if call.distinct else Accumulator.COUNT
    if name in _SUMS and kinds[0] in _INTEGERS:
        return Accumulator.SUM
    if name in (*_SUMS, *_SQUARES) and kinds[0] in _NUMBERS:
        return Accumulator.MOMENTS
    if name in ("min", "max") and kinds[0] in _ORDERED:
        return Accumulator.EXTREME
    return None


def sources_of_calls(kept: Sequence[Call], calls: Sequence[Call]) -> list[int] | None:
    """Return by call a former call with the same accumulator.

    None if a call has no such former call.
    """
    indices = {_kept_as(call): index for index, call in reversed(list(enumerate(kept)))}
    found = [indices[_kept_as(call)] for call in calls if _kept_as(call) in indices]
    return found if found and len(found) == len(calls) else None


def sources_of_columns(kept: Sequence[Call], calls: Sequence[Call]) -> list[int] | None:
    """Return by stored argument its index among the former stored arguments.

    None if an argument was not stored, or if calls store more than their arguments.
    """
    if not kept or not calls or not all(map(_stores_arguments, (*kept, *calls))):
        return None
    before, after = stored_columns(kept), stored_columns(calls)
    return [before.index(expr) for expr in after] if set(after) <= set(before) else None


def stored_columns(calls: Iterable[Call]) -> list[Expr]:
    """Return the distinct arguments that are stored for calls."""
    return list(dict.fromkeys(expr for call in calls for expr in stored(call)))


def stored(call: Call) -> Sequence[Expr]:
    """Return the arguments that are stored for a built-in call."""
    return BUILTINS[call.name.lower()].stored(call.arguments)


def _stores_arguments(call: Call) -> bool:
    name = call.name.lower()
    kernel = all(argument.type.kind not in _WITHOUT_KERNEL for argument in call.arguments)
    return name in BUILTINS and name not in _NOT_BY_COLUMN and kernel


def is_by_itself(call: Call) -> bool:
    """Return True if a call's state does not depend on its index."""
    return _stores_arguments(call) and len(stored(call)) <= 1


def _kept_as(call: Call) -> tuple[object, ...]:
    name = call.name.lower()
    window = call.window if isinstance(call, WindowCall) else None
    return ("sum" if name in _SUMS else name, call.distinct, call.arguments, window)

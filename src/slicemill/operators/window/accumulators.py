"""Accumulators of aggregate calls, and takeover of accumulators when a query is replaced.

The calls of the new query take over accumulators from the calls of the replaced query (former calls):

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
# Aggregates whose state depends on the index of the call, or counts all tuples since the query started.
_NOT_BY_COLUMN = ("priority_sample", "approx_count", "approx_count_if")


class Accumulator(StrEnum):
    """Kind of the state that a running aggregate stores for each group (`window.running`)."""

    COUNT = "count"
    DISTINCT = "distinct values"
    SUM = "sum of integers"
    MOMENTS = "sums of powers"
    EXTREME = "minimum or maximum"


def accumulator_of(call: Call) -> Accumulator | None:
    """Return the kind of accumulator for an aggregate call; None if it needs stored rows."""
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
    """Map each new call to the index of a call of the replaced query with the same accumulator.

    Return None if a new call has no such counterpart.
    """
    indices = {_kept_as(call): index for index, call in reversed(list(enumerate(kept)))}
    found = [indices[_kept_as(call)] for call in calls if _kept_as(call) in indices]
    return found if found and len(found) == len(calls) else None


def sources_of_columns(kept: Sequence[Call], calls: Sequence[Call]) -> list[int] | None:
    """Map each argument that new calls store to its index among the stored arguments of the replaced query.

    Return None if the replaced query did not store an argument, or if calls store more than their arguments.
    """
    if not kept or not calls or not all(map(_stores_arguments, (*kept, *calls))):
        return None
    before, after = stored_columns(kept), stored_columns(calls)
    return [before.index(expr) for expr in after] if set(after) <= set(before) else None


def stored_columns(calls: Iterable[Call]) -> list[Expr]:
    """Return the distinct arguments whose values the state stores for some aggregate calls."""
    return list(dict.fromkeys(expr for call in calls for expr in stored(call)))


def stored(call: Call) -> Sequence[Expr]:
    """Return the arguments whose values the state stores for a call of a built-in aggregate."""
    return BUILTINS[call.name.lower()].stored(call.arguments)


def _stores_arguments(call: Call) -> bool:
    name = call.name.lower()
    kernel = all(argument.type.kind not in _WITHOUT_KERNEL for argument in call.arguments)
    return name in BUILTINS and name not in _NOT_BY_COLUMN and kernel


def is_by_itself(call: Call) -> bool:
    """Return True if the stored state of a call does not depend on its position among the calls."""
    return _stores_arguments(call) and len(stored(call)) <= 1


def _kept_as(call: Call) -> tuple[object, ...]:
    name = call.name.lower()
    window = call.window if isinstance(call, WindowCall) else None
    return ("sum" if name in _SUMS else name, call.distinct, call.arguments, window)

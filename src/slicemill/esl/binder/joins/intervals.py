"""Derive the windows of a join from ON: `b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS`.

Each comparison of two timestamps bounds their difference. Together the bounds say how much older a row can be
than its join partners. The maximum is the time for which the join keeps the rows of that stream:

    a.ts <= b.ts AND b.ts <= a.ts + 5 s      0 <= b.ts - a.ts <= 5 s        window of a: 5 s, of b: none
                                                                            (rows of the same timestamp)
A comparison that the windows already enforce is removed from the condition. The join tests the rest on each
pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.esl.binder.joins.expiry import expiry_in
from slicemill.esl.binder.joins.kinds import joined_in_turn
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal, conjunction, conjuncts
from slicemill.esl.types.query import FrameUnit, JoinKind, QueryInput, Window
from slicemill.esl.types.schema import Kind

_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_SIGNS = {"+": 1, "-": -1}


@dataclass(frozen=True, slots=True)
class _Bound:
    """Bound on a time difference: `later` - `earlier` <= `most_us`.

    `most_us` is in microseconds and may be negative.
    """

    earlier: int
    later: int
    most_us: int


def with_windows(
    inputs: Sequence[QueryInput],
    where: Expr | None,
    times: Mapping[str, int],
    nodes: Sequence[exp.Expression],
    *,
    narrow: bool,
) -> tuple[list[QueryInput], Expr | None]:
    """Derive a window for each input, and simplify the condition.

    Comparisons that the windows enforce are removed from the condition. `times` maps timestamp columns to the
    index of their input. With `narrow`, written windows are shortened where the conditions allow it. Windows
    stay as written if aggregates range over them, and in outer joins of three or more streams.
    """
    finished = list(inputs)
    streams = [place for place, entry in enumerate(inputs) if not entry.finite]
    if len(streams) < 2 or any(inputs[place].as_of for place in streams):
        return finished, where
    if joined_in_turn(inputs):
        for place in streams:
            if inputs[place].window is None:
                _missing(inputs[place], nodes[place], {})
        return finished, where
    outer = next((place for place in streams if inputs[place].kind is not JoinKind.INNER), None)
    condition = where if outer is None else inputs[outer].on
    parts = conjuncts(condition)
    bounds = {part: found for part in parts if (found := _bounds(part, times))}
    longest = _closed(streams, [bound for found in bounds.values() for bound in found])
    for place in streams:
        entry = inputs[place]
        most = [longest.get((place, other)) for other in streams if other != place]
        known = [us for us in most if us is not None]
        derived = Window(FrameUnit.RANGE, max(0, *known) + 1) if len(known) == len(most) else None
        if entry.window is None and derived is None and len(streams) == 2 and narrow:
            (other,) = (one for one in streams if one != place)
            expires = expiry_in(condition, entry.alias, times, other)
            if expires is not None:
                finished[place] = replace(entry, window=Window(FrameUnit.RANGE, None, expires=expires))
                continue
        if entry.window is None:
            if not narrow and derived is not None:
                raise Mistake(
                    f"an aggregate ranges over windows of FROM, and {entry.alias} has none",
                    span_of(nodes[place]),
                    f"write {entry.alias} [RANGE …], or make the join a stream and aggregate over that",
                )
            finished[place] = replace(entry, window=derived or _missing(entry, nodes[place], bounds))
        elif derived is not None and narrow and _is_longer(entry.window, derived):
            finished[place] = replace(entry, window=replace(derived, expires=entry.window.expires))
    if len(streams) == 2:
        left = tuple(p for p in parts if not (p in bounds and _is_said(bounds[p], finished)))
        if outer is None:
            return finished, conjunction(left)
        finished[outer] = replace(finished[outer], on=conjunction(left))
    return finished, where


def _missing(entry: QueryInput, node: exp.Expression, bounds: Mapping[Expr, Sequence[_Bound]]) -> Window:
    if bounds:
        raise Mistake(
            f"the conditions on timestamps do not say how long {entry.alias} can wait for a partner",
            span_of(node),
            f"bound it on both sides, BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES, or give {entry.alias} a "
            f"window: {entry.alias} [RANGE 10 MINUTES]",
        )
    raise Mistake(
        f"a join of streams would keep {entry.alias} for ever",
        span_of(node),
        f"give it a window: {entry.alias} [RANGE 10 MINUTES], or add WINDOW 10 MINUTES at the end",
    )


def _is_longer(window: Window, other: Window) -> bool:
    assert other.extent is not None
    in_time = window.frame is FrameUnit.RANGE and window.slide is None
    return in_time and (window.extent is None or window.extent > other.extent)


def _is_said(bounds: Sequence[_Bound], inputs: Sequence[QueryInput]) -> bool:
    """Return True if the windows alone enforce these bounds.

    The two rows may arrive in either order.
    """
    for bound in bounds:
        window = inputs[bound.earlier].window
        assert window is not None
        in_time = window.frame is FrameUnit.RANGE and window.extent is not None
        if bound.most_us < 0 or not in_time or (window.extent or 0) > bound.most_us + 1:
            return False
    return True


def _closed(places: Sequence[int], bounds: Sequence[_Bound]) -> dict[tuple[int, int], int]:
    """Return the least time-difference bounds, including those through other streams."""
    most: dict[tuple[int, int], int] = {}
    for bound in bounds:
        pair = bound.earlier, bound.later
        most[pair] = min(most.get(pair, bound.most_us), bound.most_us)
    for via in places:
        for first in places:
            for last in places:
                if first != last and (first, via) in most and (via, last) in most:
                    way = most[first, via] + most[via, last]
                    most[first, last] = min(most.get((first, last), way), way)
    return most


def difference(part: Expr, times: Mapping[str, int]) -> tuple[int, int, bool] | None:
    """Return x, y and strictness for `x.ts <= y.ts`, else None.

    The comparison may be written in any equivalent form.
    """
    found = _bounds(part, times)
    if len(found) != 1 or found[0].most_us not in (0, -1):
        return None
    return found[0].later, found[0].earlier, found[0].most_us == -1


def _bounds(part: Expr, times: Mapping[str, int]) -> list[_Bound]:
    """Return the bounds that a comparison of two timestamps implies."""
    if not isinstance(part, Call) or part.function not in _REVERSED:
        return []
    left, right = (_linear(argument, times) for argument in part.arguments)
    if left is None or right is None:
        return []
    weights = {place: left[0].get(place, 0) - right[0].get(place, 0) for place in {*left[0], *right[0]}}
    weights = {place: weight for place, weight in weights.items() if weight}
    if sorted(weights.values()) != [-1, 1]:
        return []
    constant = left[1] - right[1]  # x - y + constant, compared with 0
    (x,) = (place for place, weight in weights.items() if weight == 1)
    (y,) = (place for place, weight in weights.items() if weight == -1)
    found = []
    if part.function in ("<", "<=", "="):
        found.append(_Bound(y, x, -constant - (part.function == "<")))
    if part.function in (">", ">=", "="):
        found.append(_Bound(x, y, constant - (part.function == ">")))
    return found


def _linear(expr: Expr, times: Mapping[str, int]) -> tuple[dict[int, int], int] | None:
    """Return timestamps and constant of a linear expression, else None."""
    if isinstance(expr, ColumnRef):
        return ({times[expr.name]: 1}, 0) if expr.name in times else None
    if isinstance(expr, Literal):
        fixed = expr.type.kind is Kind.INTERVAL
        return ({}, expr.value) if fixed and isinstance(expr.value, int) else None
    if not isinstance(expr, Call) or expr.function not in _SIGNS or not 1 <= len(expr.arguments) <= 2:
        return None
    parts = [_linear(argument, times) for argument in expr.arguments]
    sign = _SIGNS[expr.function]
    signs = [sign] if len(parts) == 1 else [1, sign]
    weights: dict[int, int] = {}
    constant = 0
    for one, own in zip(parts, signs, strict=True):
        if one is None:
            return None
        constant += own * one[1]
        for place, weight in one[0].items():
            weights[place] = weights.get(place, 0) + own * weight
    return weights, constant

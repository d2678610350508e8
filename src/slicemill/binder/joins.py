"""Binder of joins: windows derived from ON, ASOF joins, CLOSE WHEN and EXPIRES AT.

Each comparison of two timestamps, such as `b.ts BETWEEN a.ts AND a.ts + INTERVAL 5 SECONDS`, bounds their
difference. Together, the bounds determine the maximum age at which a row of a stream can still match. This
maximum age is the window of the stream, for which the join stores the rows:

    a.ts <= b.ts AND b.ts <= a.ts + 5 s      0 <= b.ts - a.ts <= 5 s        window of a: 5 s
                                                                            window of b: equal timestamps

A comparison that the windows already enforce is removed from the condition. The join tests all other
comparisons for each pair of rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from slicemill.binder.context import ErrorCollector
from slicemill.binder.environments import SelectEnvironment
from slicemill.binder.expressions import bind, bind_condition
from slicemill.binder.from_clause import BoundInput, is_outer_join_chain, on_scope, timestamp_column_inputs
from slicemill.catalog.expressions import (
    Call,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    conjunction,
    conjuncts,
    origins_of,
)
from slicemill.catalog.queries import AsOf, ExpiryColumn, FrameUnit, JoinKind, QueryInput, Window
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import child, span_of
from slicemill.types import Kind

_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_SIGNS = {"+": 1, "-": -1}


@dataclass(frozen=True, slots=True)
class _TimeBound:
    """Upper bound of a time difference: `later` - `earlier` <= `most_us`.

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
    """Derive a window for each input of a join, and simplify the condition.

    Comparisons that the windows enforce are removed from the condition. `times` maps timestamp columns to the
    index of their input. With `narrow`, windows of FROM are shortened where the conditions allow it. Windows
    of FROM are not changed if aggregates range over them, and in outer joins of three or more streams.
    """
    finished = list(inputs)
    streams = [place for place, entry in enumerate(inputs) if not entry.finite]
    if len(streams) < 2 or any(inputs[place].as_of for place in streams):
        return finished, where
    if is_outer_join_chain(inputs):
        for place in streams:
            if inputs[place].window is None:
                _reject_unbounded_input(inputs[place], nodes[place], {})
        return finished, where
    outer = next((place for place in streams if inputs[place].kind is not JoinKind.INNER), None)
    condition = where if outer is None else inputs[outer].on
    parts = conjuncts(condition)
    bounds = {part: found for part in parts if (found := _bounds(part, times))}
    longest = _transitive_bounds(streams, [bound for found in bounds.values() for bound in found])
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
                raise StatementError(
                    f"an aggregate ranges over windows of FROM, and {entry.alias} has none",
                    span_of(nodes[place]),
                    f"write {entry.alias} [RANGE …], or make the join a stream and aggregate over that",
                )
            finished[place] = replace(
                entry, window=derived or _reject_unbounded_input(entry, nodes[place], bounds)
            )
        elif derived is not None and narrow and _is_longer(entry.window, derived):
            finished[place] = replace(entry, window=replace(derived, expires=entry.window.expires))
    if len(streams) == 2:
        left = tuple(p for p in parts if not (p in bounds and _windows_enforce(bounds[p], finished)))
        if outer is None:
            return finished, conjunction(left)
        finished[outer] = replace(finished[outer], on=conjunction(left))
    return finished, where


def _reject_unbounded_input(
    entry: QueryInput, node: exp.Expression, bounds: Mapping[Expr, Sequence[_TimeBound]]
) -> Window:
    if bounds:
        raise StatementError(
            f"the conditions on timestamps do not say how long {entry.alias} must be stored for a match",
            span_of(node),
            f"bound it on both sides, BETWEEN a.ts AND a.ts + INTERVAL 10 MINUTES, or give {entry.alias} a "
            f"window: {entry.alias} [RANGE 10 MINUTES]",
        )
    raise StatementError(
        f"a join of streams would store {entry.alias} without a limit",
        span_of(node),
        f"give it a window: {entry.alias} [RANGE 10 MINUTES], or add WINDOW 10 MINUTES at the end",
    )


def _is_longer(window: Window, other: Window) -> bool:
    assert other.extent is not None
    in_time = window.frame is FrameUnit.RANGE and window.slide is None
    return in_time and (window.extent is None or window.extent > other.extent)


def _windows_enforce(bounds: Sequence[_TimeBound], inputs: Sequence[QueryInput]) -> bool:
    """Return True if the windows of a join alone enforce these time bounds.

    The windows must enforce the bounds for both arrival orders of two rows.
    """
    for bound in bounds:
        window = inputs[bound.earlier].window
        assert window is not None
        in_time = window.frame is FrameUnit.RANGE and window.extent is not None
        if bound.most_us < 0 or not in_time or (window.extent or 0) > bound.most_us + 1:
            return False
    return True


def _transitive_bounds(places: Sequence[int], bounds: Sequence[_TimeBound]) -> dict[tuple[int, int], int]:
    """Return the tightest bounds of time differences between pairs of streams.

    The result includes bounds that follow from the bounds with a third stream.
    """
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
    """Return x, y and strictness for `x.ts <= y.ts`, or None.

    The comparison may have any equivalent form.
    """
    found = _bounds(part, times)
    if len(found) != 1 or found[0].most_us not in (0, -1):
        return None
    return found[0].later, found[0].earlier, found[0].most_us == -1


def _bounds(part: Expr, times: Mapping[str, int]) -> list[_TimeBound]:
    """Return the bounds of time differences that a comparison of two timestamps implies."""
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
        found.append(_TimeBound(y, x, -constant - (part.function == "<")))
    if part.function in (">", ">=", "="):
        found.append(_TimeBound(x, y, constant - (part.function == ">")))
    return found


def _linear(expr: Expr, times: Mapping[str, int]) -> tuple[dict[int, int], int] | None:
    """Return the coefficients of timestamps, and the constant, of a linear expression.

    Return None for all other expressions.
    """
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


# ASOF JOIN and FOR SYSTEM_TIME AS OF, in which each tuple joins the latest earlier row of the other stream


_NUMBERS = {Kind.INT, Kind.BIGINT, Kind.DOUBLE}
_FORM = "write ON a.k = b.k AND b.ts <= a.ts"


def is_proctime(asked: exp.Expression) -> bool:
    """Return True for PROCTIME(), the time at which a row is processed."""
    return isinstance(asked, exp.Anonymous) and asked.name.lower() == "proctime"


def bind_as_of(
    entries: Sequence[BoundInput], inputs: list[QueryInput], env: SelectEnvironment
) -> list[QueryInput]:
    """Return the inputs of a query with the bound conditions of ASOF joins.

    An ASOF join of streams needs no window.
    """
    for place, entry in enumerate(entries):
        asked = child(entry.node, "as_of")
        if asked is not None:
            if inputs[place].finite and is_proctime(asked):
                continue  # a lookup in a table always reads the current rows, so AS OF has no effect
            moment: Expr | None = None
            if not is_proctime(asked):
                with env.use_scope(on_scope(env.scope, inputs)):
                    moment = bind(asked, env)
            times = timestamp_column_inputs(inputs, on_scope(env.scope, inputs), env.context.catalog)
            if not isinstance(moment, ColumnRef) or times.get(moment.name) != 0 or place == 0:
                raise StatementError(
                    "FOR SYSTEM_TIME AS OF takes the timestamp of the first stream in FROM",
                    span_of(asked),
                    f"write FOR SYSTEM_TIME AS OF {inputs[0].alias}.{_time_name(inputs, env)}",
                )
    found = [place for place, entry in enumerate(entries) if entry.is_as_of]
    if not found:
        return inputs
    streams = [place for place, entry in enumerate(inputs) if not entry.finite]
    (place,) = found[:1]
    node = entries[place].node
    if streams != [0, place] or any(entry.kind is not JoinKind.INNER for entry in inputs):
        raise StatementError(
            "an ASOF JOIN needs two streams at the start of FROM",
            span_of(node),
            "name the two streams first; join others in a stream of their own: CREATE STREAM ab AS SELECT …",
        )
    if env.resolved:
        raise StatementError(
            "an aggregate over an ASOF JOIN needs a window of its own",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate FROM ab [RANGE …]",
        )
    window = inputs[place].window
    if window is not None and (window.frame is FrameUnit.ROWS or window.slide is not None):
        hint = f"write {inputs[place].alias} [RANGE 1 HOUR], or leave the window out"
        raise StatementError("an ASOF JOIN needs a window of time", span_of(node), hint)
    changed = list(inputs)
    changed[0] = replace(inputs[0], window=None)
    changed[place] = _bind_as_of_condition(entries[place], inputs[place], place, inputs, env)
    return changed


def _bind_as_of_condition(
    entry: BoundInput, bound: QueryInput, place: int, inputs: Sequence[QueryInput], env: SelectEnvironment
) -> QueryInput:
    times = timestamp_column_inputs(inputs, on_scope(env.scope, inputs), env.context.catalog)
    kept: list[Expr] = []
    strict: list[bool] = []
    for part in conjuncts(bound.on):
        compared = difference(part, times)
        if compared is not None:
            earlier, later, differ = compared
            if (earlier, later) != (place, 0):
                raise StatementError(
                    f"an ASOF JOIN takes the latest row that is no later than the tuple of {inputs[0].alias}",
                    span_of(entry.on or entry.node),
                    _FORM,
                )
            strict.append(differ)
        elif _is_key(part, inputs[0].alias, bound.alias) or _inputs_of(part) == {bound.alias}:
            kept.append(part)
        else:
            raise StatementError(
                "an ASOF JOIN is on equal columns of one type, and one comparison of timestamps",
                span_of(entry.on or entry.node),
                f"{_FORM}; other conditions go to WHERE",
            )
    versions = child(entry.node, "as_of") is not None
    if len(strict) != (0 if versions else 1):
        raise StatementError(
            "an ASOF JOIN compares timestamps once",
            span_of(entry.on or entry.node),
            "leave the comparison out, because FOR SYSTEM_TIME implies it" if versions else _FORM,
        )
    left = entry.side in ("LEFT", "LEFT ASOF")
    return replace(bound, on=conjunction(tuple(kept)), as_of=AsOf(left, any(strict)))


def _is_key(part: Expr, left: str, right: str) -> bool:
    """Return True for an equality of two columns that are compared without a cast."""
    if not isinstance(part, Call) or part.function != "=":
        return False
    sides = [side.operand if isinstance(side, Cast) else side for side in part.arguments]
    columns = all(isinstance(side, ColumnRef) for side in sides)
    types = {side.type for side in sides}
    alike = len(types) == 1 or {one.kind for one in types} <= _NUMBERS
    plain = not {one.kind for one in types} & {Kind.NULL, Kind.ANY, Kind.PERIOD}
    apart = _inputs_of(sides[0]) != _inputs_of(sides[1])
    return columns and alike and plain and apart and _inputs_of(part) == {left, right}


def _inputs_of(expr: Expr) -> set[str | int | None]:
    return {None if origin is None else origin.input for origin in origins_of(expr)}


def _time_name(inputs: Sequence[QueryInput], env: SelectEnvironment) -> str:
    times = timestamp_column_inputs(inputs, on_scope(env.scope, inputs), env.context.catalog)
    own = next((name for name, place in times.items() if place == 0), "ts")
    return own.rpartition(".")[2]


# Punctuation windows: `auction [CLOSE WHEN event = 'closed'] AS a JOIN bid AS b ON a.id = b.id`
#
# A tuple that fulfils the condition closes the window of its key. The key consists of the columns that ON
# equates.


def with_closings(
    entries: Sequence[BoundInput],
    inputs: Sequence[QueryInput],
    env: SelectEnvironment,
    problems: ErrorCollector,
) -> list[QueryInput]:
    """Return the inputs of a join with their bound CLOSE WHEN conditions."""
    finished = list(inputs)
    streams = [given for given in inputs if not given.finite]
    env.place = "CLOSE WHEN"
    for place, (entry, given) in enumerate(zip(entries, inputs, strict=True)):
        frame = child(entry.node, "frame")
        node = None if frame is None or child(frame, "kind") == "SESSION" else child(frame, "close")
        if node is None or len(streams) < 2:
            continue
        with problems.collect():
            if any(other.is_as_of for other in entries):
                raise StatementError(
                    "an ASOF join stores only the latest row of a key, and has no window",
                    span_of(frame),
                    "leave CLOSE WHEN out, or use JOIN",
                )
            _check_closing(frame, node, streams, given)
            with env.use_scope(replace(env.scope, relations=((given.alias, given.schema.own),))):
                finished[place] = replace(given, closes=bind_condition(node, env))
    env.place = ""
    return finished


def _check_closing(
    frame: exp.Expression, node: exp.Expression, streams: Sequence[QueryInput], given: QueryInput
) -> None:
    if len(streams) > 2:
        raise StatementError(
            f"CLOSE WHEN is for joins of two streams, and FROM has {len(streams)}",
            span_of(node),
            "join two of them in a stream of their own: CREATE STREAM ab AS SELECT …; then FROM ab, c",
        )
    windows = [entry.window for entry in streams if entry.window is not None]
    if any(w.frame is FrameUnit.ROWS or w.slide is not None or child(frame, "expires") for w in windows):
        raise StatementError(
            "CLOSE WHEN goes with windows of time, or with none",
            span_of(frame),
            f"write {given.alias} [CLOSE WHEN …] or {given.alias} [RANGE 1 HOUR CLOSE WHEN …]",
        )


# Expiry of rows in join state, from EXPIRES AT or derived from conditions
#
# The explicit form is `auction [EXPIRES AT expires]`.
#
#     b.ts <= a.expires      a row of a expires when the time of b passes a.expires
#
# The expiry time is a timestamp column of the row, plus or minus a constant interval. Any other expiry time
# must be computed in a derived stream before the join.


def with_expiries(
    entries: Sequence[BoundInput],
    inputs: Sequence[QueryInput],
    env: SelectEnvironment,
    problems: ErrorCollector,
) -> list[QueryInput]:
    """Bind EXPIRES AT; return the inputs with the expiry times in their windows."""
    finished = list(inputs)
    env.place = "EXPIRES AT"
    for place, entry in enumerate(entries):
        frame = child(entry.node, "frame")
        node = None if frame is None else child(frame, "expires")
        if node is None:
            continue
        with problems.collect():
            if any(other.is_as_of for other in entries):
                raise StatementError(
                    "an ASOF join stores only the latest row of a key, which cannot expire",
                    span_of(node),
                    "leave EXPIRES AT out, and compare the column with the other's time in WHERE",
                )
            _check_expiry(frame, node, inputs, place)
            with env.use_scope(
                replace(env.scope, relations=((inputs[place].alias, inputs[place].schema.own),))
            ):
                found = expiry_of(bind(node, env), inputs[place].alias)
            if found is None:
                raise StatementError(
                    f"a tuple of {inputs[place].alias} expires at a time in one of its columns",
                    span_of(node),
                    "name a timestamp column of that stream, expires or expires + INTERVAL 5 SECONDS; "
                    "other times are computed by a stream before, CREATE STREAM s AS SELECT …",
                )
            window = inputs[place].window
            assert window is not None, "it is written there"
            finished[place] = replace(inputs[place], window=replace(window, expires=found))
    env.place = ""
    return finished


def _check_expiry(
    frame: exp.Expression, node: exp.Expression, inputs: Sequence[QueryInput], place: int
) -> None:
    streams = [entry for entry in inputs if not entry.finite]
    window, alias = inputs[place].window, inputs[place].alias
    if len(streams) < 2:
        raise StatementError(
            "EXPIRES AT is for joins of streams, where a stored tuple waits for others",
            span_of(node),
            "for groups that end when a column says so, use [SESSION UNTIL column]",
        )
    if window is None or window.frame is FrameUnit.ROWS or window.slide is not None:
        raise StatementError(
            "EXPIRES AT goes with a window of time, or with none",
            span_of(frame),
            f"write {alias} [EXPIRES AT …] or {alias} [RANGE 1 HOUR EXPIRES AT …]",
        )


def refuse_groups(inputs: Sequence[QueryInput], node: exp.Select) -> None:
    """Reject aggregates over joins with EXPIRES AT or CLOSE WHEN.

    These clauses do not define a window for the aggregate.
    """
    closes = any(entry.closes is not None for entry in inputs)
    if closes or any(entry.window is not None and entry.window.expires is not None for entry in inputs):
        words = "CLOSE WHEN" if closes else "EXPIRES AT"
        raise StatementError(
            f"an aggregate ranges over windows of FROM, and {words} is none",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate over ab",
        )


def expiry_of(expr: Expr, alias: str) -> ExpiryColumn | None:
    """Return the expiry time that an expression of a row computes, or None.

    The expression is a timestamp column, plus or minus a constant interval.
    """
    if isinstance(expr, ColumnRef):
        own = expr.origin is not None and expr.origin.input == alias
        return ExpiryColumn(expr.origin.column) if own and expr.origin and _is_time(expr) else None
    if not isinstance(expr, Call) or expr.function not in ("+", "-") or len(expr.arguments) != 2:
        return None
    first, second = expr.arguments
    if isinstance(first, Literal) and expr.function == "+":
        first, second = second, first
    inner = expiry_of(first, alias)
    if inner is None or not isinstance(second, Literal) or second.type.kind is not Kind.INTERVAL:
        return None
    assert isinstance(second.value, int), "intervals are microseconds"
    return replace(inner, after_us=inner.after_us + (second.value if expr.function == "+" else -second.value))


def _is_time(expr: ColumnRef) -> bool:
    return expr.type.kind is Kind.TIMESTAMP


_AT_MOST = {"<": 0, "<=": 1}
_AT_LEAST = {">": 0, ">=": 1}


def expiry_in(
    condition: Expr | None, alias: str, other_times: Mapping[str, int], other: int
) -> ExpiryColumn | None:
    """Return the expiry time of an input's rows that a join condition implies.

    For `other.ts <= alias.column`, a row of `alias` expires when the time of the other stream passes the
    column.
    """
    for part in conjuncts(condition):
        if not isinstance(part, Call) or len(part.arguments) != 2:
            continue
        left, right = part.arguments
        for time, end, included in (
            (left, right, _AT_MOST.get(part.function)),
            (right, left, _AT_LEAST.get(part.function)),
        ):
            if included is None or not isinstance(time, ColumnRef) or other_times.get(time.name) != other:
                continue
            found = expiry_of(end, alias)
            if found is not None:
                return replace(found, after_us=found.after_us + included)
    return None

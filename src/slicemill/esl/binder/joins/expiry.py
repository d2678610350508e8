"""Bind expiry columns of join state, explicit or derived from conditions.

The explicit form is `auction [EXPIRES AT expires]`.

    b.ts <= a.expires      a row of a expires when the time of b passes a.expires

The expiry is a timestamp column of the row's own stream, plus or minus a constant interval. Any other expiry
must be computed by a stream before the join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill.esl.binder.environments import SelectEnvironment
from slicemill.esl.binder.inputs import BoundInput
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.scalar import bind
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.expression import Call, ColumnRef, Expr, Literal, conjuncts
from slicemill.esl.types.query import ExpiryColumn, FrameUnit, QueryInput
from slicemill.esl.types.schema import Kind


def with_expiries(
    entries: Sequence[BoundInput], inputs: Sequence[QueryInput], env: SelectEnvironment, problems: Problems
) -> list[QueryInput]:
    """Return the inputs with their EXPIRES AT columns in the windows."""
    finished = list(inputs)
    env.place = "EXPIRES AT"
    for place, entry in enumerate(entries):
        frame = child(entry.node, "frame")
        node = None if frame is None else child(frame, "expires")
        if node is None:
            continue
        with problems.noting():
            if any(other.is_as_of for other in entries):
                raise Mistake(
                    "an ASOF join keeps the latest row of a key, and none takes its place when it expires",
                    span_of(node),
                    "leave EXPIRES AT out, and compare the column with the other's time in WHERE",
                )
            _check(frame, node, inputs, place)
            with env.seeing(replace(env.scope, relations=((inputs[place].alias, inputs[place].schema.own),))):
                found = expiry_of(bind(node, env), inputs[place].alias)
            if found is None:
                raise Mistake(
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


def _check(frame: exp.Expression, node: exp.Expression, inputs: Sequence[QueryInput], place: int) -> None:
    streams = [entry for entry in inputs if not entry.finite]
    window, alias = inputs[place].window, inputs[place].alias
    if len(streams) < 2:
        raise Mistake(
            "EXPIRES AT is for joins of streams, where a stored tuple waits for others",
            span_of(node),
            "for groups that end when a column says so, use [SESSION UNTIL column]",
        )
    if window is None or window.frame is FrameUnit.ROWS or window.slide is not None:
        raise Mistake(
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
        raise Mistake(
            f"an aggregate ranges over windows of FROM, and {words} is none",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate over ab",
        )


def expiry_of(expr: Expr, alias: str) -> ExpiryColumn | None:
    """Return the expiry of a timestamp column plus or minus an interval."""
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
    """Return the expiry that `other.ts <= alias.column` gives to `alias`, if any."""
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

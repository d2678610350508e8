"""Bind ASOF JOIN and FOR SYSTEM_TIME AS OF.

Each tuple joins the latest row of the other stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill.esl.binder.environments import SelectEnvironment
from slicemill.esl.binder.inputs import BoundInput, places_of_time
from slicemill.esl.binder.joins.intervals import difference
from slicemill.esl.binder.joins.kinds import with_all
from slicemill.esl.binder.scalar import bind
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.expression import Call, Cast, ColumnRef, Expr, conjunction, conjuncts, origins_of
from slicemill.esl.types.query import AsOf, FrameUnit, JoinKind, QueryInput
from slicemill.esl.types.schema import Kind

_NUMBERS = {Kind.INT, Kind.BIGINT, Kind.DOUBLE}
_FORM = "write ON a.k = b.k AND b.ts <= a.ts"


def is_present(asked: exp.Expression) -> bool:
    """Return True for PROCTIME(), the time at which a row is processed."""
    return isinstance(asked, exp.Anonymous) and asked.name.lower() == "proctime"


def bind_as_of(
    entries: Sequence[BoundInput], inputs: list[QueryInput], env: SelectEnvironment
) -> list[QueryInput]:
    """Return the inputs with their ASOF conditions.

    An ASOF join of streams needs no window.
    """
    for place, entry in enumerate(entries):
        asked = child(entry.node, "as_of")
        if asked is not None:
            if inputs[place].finite and is_present(asked):
                continue  # a lookup in a table always reads the rows of now
            moment: Expr | None = None
            if not is_present(asked):
                with env.seeing(with_all(env.scope, inputs)):
                    moment = bind(asked, env)
            times = places_of_time(inputs, with_all(env.scope, inputs), env.context.catalog)
            if not isinstance(moment, ColumnRef) or times.get(moment.name) != 0 or place == 0:
                raise Mistake(
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
        raise Mistake(
            "an ASOF JOIN is of two streams, the first of which asks",
            span_of(node),
            "name the two streams first; join others in a stream of their own: CREATE STREAM ab AS SELECT …",
        )
    if env.resolved:
        raise Mistake(
            "an aggregate over an ASOF JOIN needs a window of its own",
            span_of(node),
            "make the join a stream, CREATE STREAM ab AS SELECT …, and aggregate FROM ab [RANGE …]",
        )
    window = inputs[place].window
    if window is not None and (window.frame is FrameUnit.ROWS or window.slide is not None):
        hint = f"write {inputs[place].alias} [RANGE 1 HOUR], or leave the window out"
        raise Mistake("an ASOF JOIN looks back over a length of time", span_of(node), hint)
    changed = list(inputs)
    changed[0] = replace(inputs[0], window=None)
    changed[place] = _finished(entries[place], inputs[place], place, inputs, env)
    return changed


def _finished(
    entry: BoundInput, bound: QueryInput, place: int, inputs: Sequence[QueryInput], env: SelectEnvironment
) -> QueryInput:
    times = places_of_time(inputs, with_all(env.scope, inputs), env.context.catalog)
    kept: list[Expr] = []
    strict: list[bool] = []
    for part in conjuncts(bound.on):
        compared = difference(part, times)
        if compared is not None:
            earlier, later, differ = compared
            if (earlier, later) != (place, 0):
                raise Mistake(
                    f"an ASOF JOIN takes the latest row that is no later than the tuple of {inputs[0].alias}",
                    span_of(entry.on or entry.node),
                    _FORM,
                )
            strict.append(differ)
        elif _is_key(part, inputs[0].alias, bound.alias) or _inputs_of(part) == {bound.alias}:
            kept.append(part)
        else:
            raise Mistake(
                "an ASOF JOIN is on equal columns of one type, and one comparison of timestamps",
                span_of(entry.on or entry.node),
                f"{_FORM}; other conditions go to WHERE",
            )
    versions = child(entry.node, "as_of") is not None
    if len(strict) != (0 if versions else 1):
        raise Mistake(
            "an ASOF JOIN compares timestamps once",
            span_of(entry.on or entry.node),
            "FOR SYSTEM_TIME says it already" if versions else _FORM,
        )
    left = entry.side in ("LEFT", "LEFT ASOF")
    return replace(bound, on=conjunction(tuple(kept)), as_of=AsOf(left, any(strict)))


def _is_key(part: Expr, left: str, right: str) -> bool:
    """Return True for an equality of columns that compare without a cast."""
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
    times = places_of_time(inputs, with_all(env.scope, inputs), env.context.catalog)
    own = next((name for name, place in times.items() if place == 0), "ts")
    return own.rpartition(".")[2]

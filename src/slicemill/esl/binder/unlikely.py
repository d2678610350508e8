"""Warn of aggregate bodies that are valid but probably wrong."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from slicemill.esl.binder.context import Context
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.aggregate import INWINDOW, RETURN, BodyState, Delete, Insert, Statement, changes_in
from slicemill.esl.types.expression import Argument, Call, ColumnRef, Expr, Oldest, conjuncts
from slicemill.esl.types.schema import Column, Kind, Schema, Type

_WHOLE = (Kind.INT, Kind.BIGINT)
_FRACTIONAL = (Kind.DOUBLE, Kind.DECIMAL)
_HOLDS_FOR_EQUALS = ("<=", ">=", "=")


def warn_of_cut_fractions(column: Column, given: Type, node: exp.Expression, context: Context) -> None:
    """Warn if an integer column truncates a fractional value."""
    if column.type.kind in _WHOLE and given.kind in _FRACTIONAL:
        context.warn(
            f"{column.name} is {column.type}, this is {given}: what is behind the point is cut off",
            span_of(node),
            f"declare {column.name} as REAL",
        )


def warn_of_statement(
    statement: Statement,
    states: Sequence[BodyState],
    node: exp.Expression,
    arguments: Schema,
    inwindow: Schema | None,
    context: Context,
) -> None:
    """Warn of window-aggregate statements that mishandle the current tuple.

    The current tuple is the arriving one, or in EXPIRE the expiring one.
    """
    if inwindow is None:
        return
    arrives = BodyState.INITIALIZE in states or BodyState.ITERATE in states
    if arrives and isinstance(statement, Delete) and _deletes_the_newest(statement, arguments, inwindow):
        context.warn(
            "the tuple that has come is in inwindow already, and this deletes it too: "
            "where it was the last one, oldest() is NULL",
            span_of(node),
            "compare with < or >",
        )
    if BodyState.EXPIRE in states and isinstance(statement, Insert) and statement.table == RETURN:
        values = [value for row in statement.rows for value in row]
        if values and all(isinstance(value, Oldest) for value in values):
            context.warn(
                "in EXPIRE, oldest() is the tuple that leaves, not the oldest of those that stay",
                span_of(node),
                "DELETE it from inwindow first, and SELECT from what is left",
            )


def warn_of_silence(
    name: exp.Identifier, bodies: dict[BodyState, tuple[Statement, ...]], algebraic: bool, context: Context
) -> None:
    """Warn of an algebraic aggregate that returns nothing in ITERATE.

    With SLIDE, the result of a slot is what ITERATE returns for its last tuple (M34).
    """
    iterates = changes_in(bodies.get(BodyState.ITERATE, ()))
    if algebraic and not any(isinstance(s, Insert) and s.table == RETURN for s in iterates):
        context.warn(
            f"ITERATE of {name.name} returns nothing: with SLIDE, and in a window without it, only the first "
            "tuple of a partition gets a result",
            span_of(name),
            "INSERT INTO RETURN in ITERATE too",
        )


def _deletes_the_newest(statement: Delete, arguments: Schema, inwindow: Schema) -> bool:
    """Return True if a DELETE removes the tuple that just arrived."""
    return (
        statement.table == INWINDOW
        and statement.where is not None
        and all(_holds_for_itself(part, arguments, inwindow) for part in conjuncts(statement.where))
    )


def _holds_for_itself(condition: Expr, arguments: Schema, inwindow: Schema) -> bool:
    if not isinstance(condition, Call) or condition.function not in _HOLDS_FOR_EQUALS:
        return False
    places = [_place(side, arguments, inwindow) for side in condition.arguments]
    kinds = {type(side) for side in condition.arguments}
    return kinds == {Argument, ColumnRef} and None not in places and places[0] == places[1]


def _place(side: Expr, arguments: Schema, inwindow: Schema) -> int | None:
    """Return the index of an argument or inwindow column, else None."""
    if isinstance(side, Argument):
        return arguments.index(side.name)
    if isinstance(side, ColumnRef) and inwindow.find(side.name.removeprefix(f"{INWINDOW}.")) is not None:
        return inwindow.index(side.name.removeprefix(f"{INWINDOW}."))
    return None

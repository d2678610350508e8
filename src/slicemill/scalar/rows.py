"""Expressions as closures: compiled once, then called per row, with the semantics of Spark SQL in ANSI mode.

`compile_expression` reads columns of a row. `compile_with` leaves it to the caller what columns, arguments
and sub-queries mean, for whoever evaluates over something else than rows. An argument declared without a type
(ANY) is typed by the value at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeAlias, TypeVar

from slicemill.esl.types.expression import (
    Argument,
    Call,
    Case,
    Cast,
    ColumnRef,
    ExistsQuery,
    Expr,
    Literal,
    Oldest,
    ScalarQuery,
)
from slicemill.esl.types.schema import Kind, Schema, Type
from slicemill.rows import Row
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.table import conversions_and_function
from slicemill.scalar.untyped import dynamic_function
from slicemill.scalar.values import ExpressionError, Function

__all__ = ["ExpressionError", "Leaf", "compile_condition", "compile_expression", "compile_with"]

E = TypeVar("E")
Getter: TypeAlias = Callable[[E], object]
Leaf: TypeAlias = ColumnRef | Argument | Oldest | ScalarQuery | ExistsQuery
Resolve: TypeAlias = Callable[[Leaf], Callable[[E], object]]


def compile_expression(expr: Expr, schema: Schema) -> Callable[[Row], object]:
    """The value of an expression for a row in the order of `schema`."""

    def column(leaf: Leaf) -> Callable[[Row], object]:
        if not isinstance(leaf, ColumnRef):
            raise TypeError(f"{type(leaf).__name__} has no meaning outside an aggregate's body")
        return itemgetter(schema.index(leaf.name))

    return compile_with(expr, column)


def compile_condition(expr: Expr, schema: Schema) -> Callable[[Row], bool]:
    """Whether a condition is true for a row: neither false nor unknown."""
    value = compile_expression(expr, schema)
    return lambda row: value(row) is True


def compile_with(expr: Expr, resolve: Resolve[E]) -> Callable[[E], object]:
    """The value of an expression in an environment; `resolve` gives the getter of a leaf."""
    if isinstance(expr, Literal):
        return _constant(converter(expr.type, expr.type)(expr.value))
    if isinstance(expr, Cast):
        return _cast(expr, compile_with(expr.operand, resolve))
    if isinstance(expr, Case):
        branches = [
            (compile_with(when, resolve), _converted(then, expr.type, resolve))
            for when, then in expr.branches
        ]
        return _case(branches, _converted(expr.default, expr.type, resolve))
    if isinstance(expr, Call):
        return _call(expr, resolve)
    return resolve(expr)


def _converted(expr: Expr, target: Type, resolve: Resolve[E]) -> Getter[E]:
    """A getter whose value has the target's type."""
    getter = compile_with(expr, resolve)
    if expr.type == target or target.kind is Kind.ANY:
        return getter
    if isinstance(expr, Literal):
        return _constant(converter(expr.type, target)(expr.value))
    return _strict((getter,), converter(expr.type, target))


def _constant(value: object) -> Getter[E]:
    return lambda _env: value


def _cast(expr: Cast, operand: Getter[E]) -> Getter[E]:
    convert = converter(expr.operand.type, expr.type)
    strict: Getter[E] = _strict((operand,), convert)
    if not expr.safe:
        return strict

    def safely(env: E) -> object:
        value = operand(env)  # TRY_CAST forgives its own conversion, not an error below it
        try:
            return None if value is None else convert(value)
        except ExpressionError:
            return None

    return safely


def _case(branches: Sequence[tuple[Getter[E], Getter[E]]], default: Getter[E]) -> Getter[E]:
    def value(env: E) -> object:
        for when, then in branches:
            if when(env) is True:
                return then(env)
        return default(env)

    return value


def _call(call: Call, resolve: Resolve[E]) -> Getter[E]:
    if call.function in _LAZY:
        return _LAZY[call.function](call, resolve)
    arguments = [compile_with(argument, resolve) for argument in call.arguments]
    types = tuple(argument.type for argument in call.arguments)
    if any(type_.kind is Kind.ANY for type_ in types):
        return _values(arguments, dynamic_function(call.function, call.arguments))
    conversions, function, strict = conversions_and_function(call.function, types, call.type)
    getters = [
        getter if convert is None else _strict((getter,), convert)
        for getter, convert in zip(arguments, conversions, strict=True)
    ]
    return _strict(getters, function) if strict else _values(getters, function)


def _strict(getters: Sequence[Getter[E]], function: Function) -> Getter[E]:
    """A call whose result is NULL as soon as an argument is."""
    if len(getters) == 1:
        (only,) = getters

        def unary(env: E) -> object:
            value = only(env)
            return None if value is None else function(value)

        return unary
    if len(getters) == 2:
        first, second = getters

        def binary(env: E) -> object:
            left = first(env)
            if left is None:
                return None
            right = second(env)
            return None if right is None else function(left, right)

        return binary

    def call(env: E) -> object:
        values = [getter(env) for getter in getters]
        return None if None in values else function(*values)

    return call


def _values(getters: Sequence[Getter[E]], function: Function) -> Getter[E]:
    return lambda env: function(*[getter(env) for getter in getters])


# -- forms that do not evaluate all of their arguments ------------------------------------------------------


def _and(call: Call, resolve: Resolve[E]) -> Getter[E]:
    left, right = (compile_with(argument, resolve) for argument in call.arguments)

    def both(env: E) -> object:
        first = left(env)
        if first is False:
            return False
        second = right(env)
        if second is False:
            return False
        return None if first is None or second is None else True

    return both


def _or(call: Call, resolve: Resolve[E]) -> Getter[E]:
    left, right = (compile_with(argument, resolve) for argument in call.arguments)

    def either(env: E) -> object:
        first = left(env)
        if first is True:
            return True
        second = right(env)
        if second is True:
            return True
        return None if first is None or second is None else False

    return either


def _coalesce(call: Call, resolve: Resolve[E]) -> Getter[E]:
    getters = [_converted(argument, call.type, resolve) for argument in call.arguments]

    def first_known(env: E) -> object:
        for getter in getters:
            value = getter(env)
            if value is not None:
                return value
        return None

    return first_known


def _if(call: Call, resolve: Resolve[E]) -> Getter[E]:
    condition, then, otherwise = call.arguments
    branch = (compile_with(condition, resolve), _converted(then, call.type, resolve))
    return _case([branch], _converted(otherwise, call.type, resolve))


def _nvl2(call: Call, resolve: Resolve[E]) -> Getter[E]:
    tested, then, otherwise = call.arguments
    value = compile_with(tested, resolve)
    branch = (lambda env: value(env) is not None, _converted(then, call.type, resolve))
    return _case([branch], _converted(otherwise, call.type, resolve))


_LAZY: dict[str, Callable[[Call, Resolve[E]], Getter[E]]] = {
    "and": _and,
    "or": _or,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "if": _if,
    "nvl2": _nvl2,
}

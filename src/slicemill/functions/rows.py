"""Row-by-row evaluation: compiled closures with the semantics of Spark's ANSI mode.

`compile_expression` compiles an expression to a function of a row. `compile_with` compiles it to a function
of any environment; its argument `resolve` compiles columns, arguments and sub-queries. The type of an ANY
argument is determined by each value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TypeAlias, TypeVar

from slicemill import types as t
from slicemill.catalog.expressions import (
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
    is_null,
)
from slicemill.functions.casts import converter, type_of_value
from slicemill.functions.function import RowFunction, Types
from slicemill.functions.logic import case_row
from slicemill.functions.registry import expand_abbreviation, function_of, row_form
from slicemill.functions.signatures import SCALARS, arithmetic_type, result_type
from slicemill.functions.values import ExpressionError
from slicemill.types import Kind, Schema, Type

E = TypeVar("E")
Getter: TypeAlias = Callable[[E], object]
Leaf: TypeAlias = ColumnRef | Argument | Oldest | ScalarQuery | ExistsQuery
Resolve: TypeAlias = Callable[[Leaf], Callable[[E], object]]


def compile_expression(expr: Expr, schema: Schema) -> Callable[[tuple[object, ...]], object]:
    """Compile an expression over rows in the order of `schema`."""

    def column(leaf: Leaf) -> Callable[[tuple[object, ...]], object]:
        if not isinstance(leaf, ColumnRef):
            raise TypeError(f"{type(leaf).__name__} has no meaning outside an aggregate's body")
        return itemgetter(schema.index(leaf.name))

    return compile_with(expr, column)


def compile_condition(expr: Expr, schema: Schema) -> Callable[[tuple[object, ...]], bool]:
    """Compile a predicate; NULL counts as false."""
    value = compile_expression(expr, schema)
    return lambda row: value(row) is True


def compile_with(expr: Expr, resolve: Resolve[E]) -> Callable[[E], object]:
    """Compile an expression over an environment.

    `resolve` returns a function that reads the value of a column, argument or sub-query from an environment.
    """
    if isinstance(expr, Literal):
        return _constant(converter(expr.type, expr.type)(expr.value))
    if isinstance(expr, Cast):
        return _cast(expr, compile_with(expr.operand, resolve))
    if isinstance(expr, Case):
        branches = [
            (compile_with(when, resolve), _getter_as(then, expr.type, resolve))
            for when, then in expr.branches
        ]
        return case_row(branches, _getter_as(expr.default, expr.type, resolve))
    if isinstance(expr, Call):
        return _call(expr, resolve)
    return resolve(expr)


def _getter_as(expr: Expr, target: Type, resolve: Resolve[E]) -> Getter[E]:
    """Return a getter whose value has the target type."""
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
        value = operand(env)  # TRY_CAST ignores errors of its own conversion only, not of its operand
        try:
            return None if value is None else convert(value)
        except ExpressionError:
            return None

    return safely


def _call(call: Call, resolve: Resolve[E]) -> Getter[E]:
    meant = expand_abbreviation(call)
    if meant is not call:
        return compile_with(meant, resolve)
    types = tuple(argument.type for argument in call.arguments)
    entry = function_of(call.function, types)
    if entry.lazy:
        wanted = entry.takes(types, call.type)
        pairs = zip(call.arguments, wanted, strict=True)
        lazy: Getter[E] = entry.row(wanted, call.type)(*(_getter_as(a, to, resolve) for a, to in pairs))
        return lazy
    arguments = [compile_with(argument, resolve) for argument in call.arguments]
    if any(type_.kind is Kind.ANY for type_ in types):
        return _values(arguments, dynamic_call(call.function, call.arguments))
    conversions, function, strict = row_form(call.function, types, call.type)
    getters = [
        getter if convert is None else _strict((getter,), convert)
        for getter, convert in zip(arguments, conversions, strict=True)
    ]
    if strict and any(is_null(argument) for argument in call.arguments):
        return _constant(None)
    return _strict(getters, function, entry.right_first) if strict else _values(getters, function)


def _strict(getters: Sequence[Getter[E]], function: RowFunction, right_first: bool = False) -> Getter[E]:
    """Return a getter of a call that is NULL if an argument is NULL.

    Arguments after the first NULL are not evaluated.
    """
    if len(getters) == 1:
        (only,) = getters

        def unary(env: E) -> object:
            value = only(env)
            return None if value is None else function(value)

        return unary
    if len(getters) == 2:
        first, second = getters

        def right_to_left(env: E) -> object:
            right = second(env)
            if right is None:
                return None
            left = first(env)
            return None if left is None else function(left, right)

        if right_first:
            return right_to_left

        def binary(env: E) -> object:
            left = first(env)
            if left is None:
                return None
            right = second(env)
            return None if right is None else function(left, right)

        return binary

    def call(env: E) -> object:
        values: list[object] = []
        for getter in getters:
            value = getter(env)
            if value is None:
                return None
            values.append(value)
        return function(*values)

    return call


def _values(getters: Sequence[Getter[E]], function: RowFunction) -> Getter[E]:
    return lambda env: function(*[getter(env) for getter in getters])


# Calls with arguments of type ANY, whose types are those of the values at run time
#
# The function for each combination of types is resolved once, by the rules of the binder.


_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "&", "|", "^")
_UNARY = ("negative", "~")


def dynamic_call(name: str, arguments: Sequence[Expr]) -> RowFunction:
    """Return a Python function that evaluates a call with arguments of type ANY.

    The types of ANY arguments are determined by their values, at run time.
    """
    known: dict[Types, RowFunction] = {}

    def call(*values: object) -> object:
        types = tuple(
            type_of_value(value) if argument.type.kind is Kind.ANY else argument.type
            for argument, value in zip(arguments, values, strict=True)
        )
        function = known.get(types)
        if function is None:
            typed = [
                argument if isinstance(argument, Literal) else ColumnRef("", type_)
                for argument, type_ in zip(arguments, types, strict=True)
            ]
            function = known[types] = _function(name, typed)
        return function(*values)

    return call


def _function(name: str, arguments: Sequence[Expr]) -> RowFunction:
    types = tuple(argument.type for argument in arguments)
    result = result_of_call(name, arguments, types)
    if result is None:
        raise ExpressionError(f"{name} does not take {' and '.join(map(str, types))}")
    conversions, function, strict = row_form(name, types, result)

    def call(*values: object) -> object:
        converted = [
            value if convert is None else convert(value)
            for value, convert in zip(values, conversions, strict=True)
        ]
        return None if strict and None in converted else function(*converted)

    return call


def result_of_call(name: str, arguments: Sequence[Expr], types: Types) -> Type | None:
    """Return the type of a call.

    Return None if there is no such call.
    """
    if name in _ARITHMETIC:
        return arithmetic_type(name, *types)
    if name in _UNARY:
        return types[0]
    if name == "whole_units":
        return t.BIGINT
    signature = SCALARS.get(name)
    if signature is None:
        return t.BOOLEAN
    return result_type(signature, arguments)

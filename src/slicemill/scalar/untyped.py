"""Calls on arguments of type ANY, typed at run time by value.

The function for each combination of types is resolved once, by the rules of the binder.
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.esl.types import schema as t
from slicemill.esl.types.expression import ColumnRef, Expr, Literal
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.function import RowFunction, Types
from slicemill.scalar.functions.casts import type_of_value
from slicemill.scalar.operator_types import arithmetic_type
from slicemill.scalar.signatures import SCALARS, result_type
from slicemill.scalar.table import row_form
from slicemill.scalar.values import ExpressionError

_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "&", "|", "^")
_UNARY = ("negative", "~")


def untyped_call(name: str, arguments: Sequence[Expr]) -> RowFunction:
    """Return a call as a function of its values.

    Values of ANY arguments are typed at run time.
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

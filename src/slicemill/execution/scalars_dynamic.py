"""Calls on arguments declared without a type (ANY): the values at hand decide what the call means.

Each combination of types is worked out once, by the binder's own rules.
"""

from __future__ import annotations

from slicemill.esl import types as t
from slicemill.esl.expression import Literal
from slicemill.esl.functions import SCALARS, result_type
from slicemill.esl.operators import arithmetic_type
from slicemill.esl.types import Kind, Type
from slicemill.execution.scalars import ExpressionError, Function, Types
from slicemill.execution.scalars_cast import type_of_value
from slicemill.execution.scalars_table import conversions_and_function

_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "&", "|", "^")
_UNARY = ("negative", "~")


def dynamic_function(name: str, types: Types) -> Function:
    """The call as a function of all its values; those of type ANY are typed when they are there."""
    known: dict[Types, Function] = {}

    def call(*values: object) -> object:
        actual = tuple(
            type_of_value(value) if type_.kind is Kind.ANY else type_
            for type_, value in zip(types, values, strict=True)
        )
        function = known.get(actual)
        if function is None:
            function = known[actual] = _function(name, actual)
        return function(*values)

    return call


def _function(name: str, types: Types) -> Function:
    result = _result(name, types)
    if result is None:
        raise ExpressionError(f"{name} does not take {' and '.join(map(str, types))}")
    conversions, function, strict = conversions_and_function(name, types, result)

    def call(*values: object) -> object:
        converted = [
            value if convert is None else convert(value)
            for value, convert in zip(values, conversions, strict=True)
        ]
        return None if strict and None in converted else function(*converted)

    return call


def _result(name: str, types: Types) -> Type | None:
    if name in _ARITHMETIC:
        return arithmetic_type(name, *types)
    if name in _UNARY:
        return types[0]
    if name == "whole_units":
        return t.BIGINT
    signature = SCALARS.get(name)
    if signature is None:
        return t.BOOLEAN
    return result_type(signature, [Literal(None, type_) for type_ in types])

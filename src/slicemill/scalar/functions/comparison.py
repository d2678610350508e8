"""Comparison, membership and NULL handling, with SQL's unknown as None.

Among doubles NaN equals itself and is larger than everything else, so that they can be sorted and grouped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.values import (
    Function,
    Scalar,
    Types,
    as_common,
    as_doubles,
    as_given,
    as_result,
    plain,
)


def _double_equals(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _double_less(a: float, b: float) -> bool:
    return a < b or (math.isnan(b) and not math.isnan(a))


def equality(type_: Type) -> Callable[[object, object], bool]:
    return _double_equals if type_.kind is Kind.DOUBLE else operator.eq  # type: ignore[return-value]


def less(type_: Type) -> Function:
    """Whether the first value sorts before the second, none of them NULL."""
    return _double_less if type_.kind is Kind.DOUBLE else operator.lt


def _comparable(types: Types, result: Type) -> Types:
    """What both sides become. Exact numbers compare as they are: no decimal of 38 digits holds them all."""
    wanted = as_common(types, result)
    return types if wanted[0].kind is Kind.DECIMAL else wanted


def _comparison(of: Callable[[Function, Function], Function]) -> Scalar:
    """A comparison made from equality and less-than of the type both sides have in common."""
    return Scalar(lambda types, _result: of(equality(types[0]), less(types[0])), _comparable)


def _null_safe(types: Types, result: Type) -> Function:
    del result
    equals = equality(types[0])
    return lambda a, b: a is b if a is None or b is None else equals(a, b)


def _in(types: Types, result: Type) -> Function:
    del result
    equals = equality(types[0])

    def member(value: object, *choices: object) -> bool | None:
        if value is None:
            return None
        unknown = False
        for choice in choices:
            if choice is None:
                unknown = True
            elif equals(value, choice):
                return True
        return None if unknown else False

    return member


def _extreme(largest: bool) -> Callable[[Types, Type], Function]:
    def make(types: Types, result: Type) -> Function:
        del types
        before = less(result)

        def extreme(*values: object) -> object:
            best: object = None
            for value in values:
                if value is None:
                    continue
                if best is None or (before(best, value) if largest else before(value, best)):
                    best = value
            return best

        return extreme

    return make


def _nullif(types: Types, result: Type) -> Function:
    del result
    wanted = _comparable(types, types[0])
    first, second = (converter(*pair) for pair in zip(types, wanted, strict=True))
    equals = equality(wanted[0])

    def unless_equal(a: object, b: object) -> object:
        return None if a is not None and b is not None and equals(first(a), second(b)) else a

    return unless_equal


COMPARISON: dict[str, Scalar] = {
    "=": _comparison(lambda equals, _less: equals),
    "<>": _comparison(lambda equals, _less: lambda a, b: not equals(a, b)),
    "<": _comparison(lambda _equals, less: less),
    "<=": _comparison(lambda _equals, less: lambda a, b: not less(b, a)),
    ">": _comparison(lambda _equals, less: lambda a, b: less(b, a)),
    ">=": _comparison(lambda _equals, less: lambda a, b: not less(a, b)),
    "<=>": Scalar(_null_safe, _comparable, strict=False),
    "in": Scalar(_in, _comparable, strict=False),
    "not": plain(operator.not_),
    "greatest": Scalar(_extreme(largest=True), as_result, strict=False),
    "least": Scalar(_extreme(largest=False), as_result, strict=False),
    "nullif": Scalar(_nullif, as_given, strict=False),
    "isnan": plain(lambda value: value is not None and math.isnan(value), as_doubles, strict=False),
    "isnull": plain(lambda value: value is None, strict=False),
    "isnotnull": plain(lambda value: value is not None, strict=False),
}

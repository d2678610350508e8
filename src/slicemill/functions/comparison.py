"""Comparison, IN and NULL tests, in SQL's three-valued logic.

For doubles, NaN equals itself and is larger than every other value, so that doubles can be sorted and
grouped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill import types as t
from slicemill.functions.function import (
    SAME,
    RowFunction,
    RowMaker,
    ScalarFunction,
    Types,
    as_common,
    as_doubles,
    as_result,
    plain,
)
from slicemill.functions.kernel import VARIES, Kernel, KernelCall, KernelMaker, Strict, free_kernel
from slicemill.functions.source import Snippet, SnippetMaker, SourceMaker, kinds_of
from slicemill.functions.values import INTS_32, INTS_64
from slicemill.functions.vectors import (
    Data,
    Vector,
    and_masks,
    arrow_type,
    choose_values,
    is_arrow_type,
    on_arrow,
    or_masks,
)
from slicemill.kernels.arrays import Bools
from slicemill.types import Kind, Type

Test: TypeAlias = Callable[[Any, Any], Bools]


def _comparable(types: Types, result: Type) -> Types:
    """Return the types that the operands are converted to.

    Exact numbers keep their types if no decimal type holds all of their digits.
    """
    wanted = as_common(types, result)
    if wanted[0].kind is not Kind.DECIMAL:
        return wanted
    common = _exact_common([t.as_decimal(type_) for type_ in types if type_.kind is not Kind.NULL])
    return types if common is None else (common,) * len(types)


def _exact_common(types: Sequence[Type]) -> Type | None:
    """Return the decimal type that holds all digits of these decimals.

    Return None if 38 digits are not enough.
    """
    whole = max((type_.precision or 0) - (type_.scale or 0) for type_ in types)
    scale = max(type_.scale or 0 for type_ in types)
    return t.decimal(whole + scale, scale) if whole + scale <= t.MAX_DECIMAL_PRECISION else None


# -- the relations equal and less: row functions, kernels and source text ---------------------------------


def equality(type_: Type) -> Callable[[object, object], bool]:
    return _double_equals if type_.kind is Kind.DOUBLE else operator.eq  # type: ignore[return-value]


def _double_equals(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def equal_columns(type_: Type) -> Test:
    if type_.kind is Kind.DOUBLE:
        return lambda a, b: (a == b) | ((a != a) & (b != b))
    if is_arrow_type(type_):
        return lambda a, b: on_arrow(pc.equal, a, b)
    if type_.kind is Kind.PERIOD:
        return lambda a, b: (a == b).all(axis=-1)
    return np.equal


def _equal_source(kind: Kind, a: str, b: str) -> str:
    return f"({a} == {b} or ({a} != {a} and {b} != {b}))" if kind is Kind.DOUBLE else f"({a} == {b})"


def less(type_: Type) -> RowFunction:
    """Return a function that tests if a value sorts before another value.

    The values must not be NULL.
    """
    return _double_less if type_.kind is Kind.DOUBLE else operator.lt


def _double_less(a: float, b: float) -> bool:
    return a < b or (math.isnan(b) and not math.isnan(a))


def _less_columns(type_: Type) -> Test:
    if type_.kind is Kind.DOUBLE:
        return lambda a, b: ~(a >= b) & (a == a)
    if is_arrow_type(type_):
        return lambda a, b: on_arrow(pc.less, a, b)
    return np.less


def less_source(kind: Kind, a: str, b: str) -> str:
    return f"({a} < {b} or ({b} != {b} and {a} == {a}))" if kind is Kind.DOUBLE else f"({a} < {b})"


class ComparisonForms(NamedTuple):
    """Row function, kernel and source text that test a relation of two values.

    The values are not NULL. The relation is *equal* or *less*.
    """

    row: Callable[[Type], RowFunction]
    column: Callable[[Type], Test]
    source: Callable[[Kind, str, str], str]


_EQUAL = ComparisonForms(equality, equal_columns, _equal_source)
_LESS = ComparisonForms(less, _less_columns, less_source)


# -- comparison operators, derived from *equal* and *less* ---------------------------------------------------


def _comparison(
    relation: ComparisonForms,
    numbers: Test,
    arrow: Callable[..., Any],
    swapped: bool = False,
    negated: bool = False,
) -> ScalarFunction:
    """Return a comparison operator such as >=, derived from *equal* or *less*.

    `swapped` exchanges the operands, and `negated` negates the result. `numbers` and `arrow` compare columns
    of types without NaN.
    """

    def row(types: Types, _result: Type) -> RowFunction:
        holds = relation.row(types[0])
        if negated:
            return (lambda a, b: not holds(b, a)) if swapped else (lambda a, b: not holds(a, b))
        return (lambda a, b: holds(b, a)) if swapped else holds

    def column(call: KernelCall) -> Strict:
        type_ = call.types[0]
        if is_arrow_type(type_):
            return lambda a, b: on_arrow(arrow, a, b)
        if type_.kind not in (Kind.DOUBLE, Kind.PERIOD):
            return numbers
        holds = relation.column(type_)
        if negated:
            return (lambda a, b: ~holds(b, a)) if swapped else (lambda a, b: ~holds(a, b))
        return (lambda a, b: holds(b, a)) if swapped else holds

    def source(kind: Kind, a: str, b: str) -> str:
        text = relation.source(kind, b, a) if swapped else relation.source(kind, a, b)
        return f"(not {text})" if negated else text

    return ScalarFunction(
        row=row,
        takes=_comparable,
        column=_exactly(column),
        source=_comparison_source(source, order=relation is _LESS),
        duckdb=SAME,
    )


def _exactly(make: KernelMaker) -> KernelMaker:
    """Return a kernel maker that makes no kernel for decimals without a common type."""

    def checked(call: KernelCall) -> Kernel | Strict | None:
        mixed = len(set(call.types)) > 1 and any(type_.kind is Kind.DECIMAL for type_ in call.types)
        return None if mixed else make(call)

    return checked


def _comparison_source(text: Callable[[Kind, str, str], str], order: bool) -> SourceMaker:
    """Return Python source text of a comparison, for compiled aggregates.

    `order` is set if the comparison depends on the order of strings. Machine code represents strings as
    integer codes, which do not preserve the order.
    """

    def make(types: Types, _result: Type, machine: bool) -> SnippetMaker | None:
        kinds = kinds_of(types)
        simple = kinds <= {*INTS_32, *INTS_64, Kind.DOUBLE, Kind.BOOLEAN}
        strings = kinds == {Kind.VARCHAR} and not (order and machine)
        if not simple and not strings and not (kinds == {Kind.DECIMAL} and not machine):
            return None
        kind = types[0].kind
        return lambda a, b: Snippet(text(kind, a, b), twice=kind is Kind.DOUBLE)

    return make


_EQUALS = _comparison(_EQUAL, np.equal, pc.equal)
_BELOW = _comparison(_LESS, np.less, pc.less)
_ABOVE = _comparison(_LESS, np.greater, pc.greater, swapped=True)


# -- NULL-aware comparisons: <=> and IN ---------------------------------------------------------------------


def _null_safe_row(types: Types, _result: Type) -> RowFunction:
    equals = equality(types[0])
    return lambda a, b: a is b if a is None or b is None else equals(a, b)


def _null_safe_column(call: KernelCall) -> Kernel:
    same = equal_columns(call.types[0])

    def equal_or_both_null(left: Vector, right: Vector) -> Vector:
        fallback = or_masks(left.fallback, right.fallback)
        found = same(left.data, right.data)
        if left.valid is not None or right.valid is not None:
            known_left, known_right = _non_null_mask(left), _non_null_mask(right)
            found = (found & known_left & known_right) | ~(known_left | known_right)
        return Vector(t.BOOLEAN, found, None, fallback)

    return Kernel(equal_or_both_null, strict=False)


_FEW = 6  # maximum number of IN choices for which comparing with each choice is faster than a hash lookup


def _in_row(types: Types, _result: Type) -> RowFunction:
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


def _in_column(call: KernelCall) -> Kernel:
    type_ = call.types[0]
    choices = call.values[1:]
    constants = [choice for choice in choices if choice is not None and choice is not VARIES]
    sought = _lookup(type_, constants) if VARIES not in choices and len(constants) > _FEW else None
    same = equal_columns(type_)

    def member(value: Vector, *others: Vector) -> Vector:
        fallback = reduce(or_masks, (vector.fallback for vector in (value, *others)))
        if sought is not None:
            hit = sought(value.data)
        else:
            hit = np.asarray(False)
            for other in others:
                found = same(value.data, other.data)
                hit = hit | (found if other.valid is None else found & other.valid)
        for other in others:
            if other.valid is not None:
                value = Vector(type_, value.data, and_masks(value.valid, hit | other.valid))
        return Vector(t.BOOLEAN, hit, value.valid, fallback)

    return Kernel(member, strict=False)


def _lookup(type_: Type, choices: list[Any]) -> Callable[[Data], Bools] | None:
    if is_arrow_type(type_):
        values = pa.array(choices, arrow_type(type_))
        return lambda data: on_arrow(pc.is_in, data, values)
    if type_.kind in (Kind.DOUBLE, Kind.PERIOD):
        return None
    known = np.array(choices)
    return lambda data: np.isin(data, known)


# -- greatest and least -----------------------------------------------------------------------------------


def _extreme_row(largest: bool) -> RowMaker:
    def make(_types: Types, result: Type) -> RowFunction:
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


def _extreme_column(largest: bool) -> KernelMaker:
    def make(call: KernelCall) -> Kernel | None:
        type_ = call.result
        if type_.kind is Kind.PERIOD:
            return None
        before = _less_columns(type_)

        def extreme(*vectors: Vector) -> Vector:
            best = vectors[0]
            for vector in vectors[1:]:
                wins = before(best.data, vector.data) if largest else before(vector.data, best.data)
                if vector.valid is not None:
                    wins = wins & vector.valid
                if best.valid is not None:
                    wins = wins | ~best.valid
                data = choose_values(wins, vector.data, best.data, type_)
                valid = None
                if best.valid is not None and vector.valid is not None:
                    valid = best.valid | vector.valid
                best = Vector(type_, data, valid, or_masks(best.fallback, vector.fallback))
            return best

        return Kernel(extreme, strict=False)

    return make


# -- tests for NULL and NaN -------------------------------------------------------------------------------


def _non_null_mask(vector: Vector) -> Bools:
    return np.asarray(True) if vector.valid is None else vector.valid


def _is_null_column(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, ~_non_null_mask(vector), None, vector.fallback)


def _is_not_null_column(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, _non_null_mask(vector), None, vector.fallback)


def _is_nan_row(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def _is_nan_column(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, np.isnan(vector.data) & _non_null_mask(vector), None, vector.fallback)


COMPARISON: dict[str, ScalarFunction] = {
    "=": _EQUALS,
    "<>": _comparison(_EQUAL, np.not_equal, pc.not_equal, negated=True),
    "<": _BELOW,
    "<=": _comparison(_LESS, np.less_equal, pc.less_equal, swapped=True, negated=True),
    ">": _ABOVE,
    ">=": _comparison(_LESS, np.greater_equal, pc.greater_equal, negated=True),
    "<=>": ScalarFunction(
        row=_null_safe_row,
        takes=_comparable,
        strict=False,
        column=_exactly(_null_safe_column),
        source=_EQUALS.source,
        duckdb=SAME,
    ),
    "in": ScalarFunction(
        row=_in_row,
        takes=_comparable,
        strict=False,
        column=_exactly(_in_column),
        source=_EQUALS.source,
        duckdb=SAME,
    ),
    "greatest": ScalarFunction(
        row=_extreme_row(largest=True),
        takes=as_result,
        strict=False,
        column=_extreme_column(largest=True),
        source=_ABOVE.source,
        duckdb=SAME,
    ),
    "least": ScalarFunction(
        row=_extreme_row(largest=False),
        takes=as_result,
        strict=False,
        column=_extreme_column(largest=False),
        source=_BELOW.source,
        duckdb=SAME,
    ),
    "isnan": ScalarFunction(
        row=plain(_is_nan_row),
        takes=as_doubles,
        strict=False,
        column=free_kernel(_is_nan_column),
        duckdb="coalesce(isnan({0}), FALSE)",
    ),
    "isnull": ScalarFunction(
        row=plain(lambda value: value is None),
        strict=False,
        column=free_kernel(_is_null_column),
        duckdb=SAME,
    ),
    "isnotnull": ScalarFunction(
        row=plain(lambda value: value is not None),
        strict=False,
        column=free_kernel(_is_not_null_column),
        duckdb="({0} IS NOT NULL)",
    ),
}

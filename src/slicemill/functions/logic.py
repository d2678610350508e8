"""AND, OR, NOT, CASE and COALESCE, in SQL's three-valued logic.

A row function (plain Python, one row at a time) evaluates an argument only if its value is needed. A kernel
(whole columns) evaluates every argument for all rows, but ignores an argument's failure in rows that do not
use the argument. So `CASE WHEN b <> 0 THEN a / b END` never fails.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from slicemill import types as t
from slicemill.catalog.expressions import Call, Case, Literal
from slicemill.functions.function import SAME, Abbreviation, ScalarFunction, as_result, plain
from slicemill.functions.kernel import Free, Kernel, KernelCall, free_kernel, kernel
from slicemill.functions.source import Snippet
from slicemill.functions.vectors import Vector, and_masks, choose_values, is_constant, null_constant, or_masks
from slicemill.kernels.arrays import Bools
from slicemill.types import Type

Getter: TypeAlias = Callable[[Any], object]  # function that reads a value from an environment, such as a row


def true_rows(vector: Vector) -> Bools:
    """Return a mask of rows where a predicate is true, not NULL."""
    return np.asarray(vector.data if vector.valid is None else vector.data & vector.valid)


def _is_false(vector: Vector) -> Bools:
    return np.asarray(~vector.data if vector.valid is None else ~vector.data & vector.valid)


# -- AND and OR -------------------------------------------------------------------------------------------


def _and_row(left: Getter, right: Getter) -> Getter:
    def conjunction(env: Any) -> object:
        first = left(env)
        if first is False:
            return False
        second = right(env)
        if second is False:
            return False
        return None if first is None or second is None else True

    return conjunction


def _and_column(left: Vector, right: Vector) -> Vector:
    fallback = left.fallback
    if right.fallback is not None:
        fallback = or_masks(fallback, right.fallback & ~_is_false(left))
    if left.valid is None and right.valid is None:
        return Vector(t.BOOLEAN, left.data & right.data, None, fallback)
    true = true_rows(left) & true_rows(right)
    return Vector(t.BOOLEAN, true, true | _is_false(left) | _is_false(right), fallback)


def _or_row(left: Getter, right: Getter) -> Getter:
    def disjunction(env: Any) -> object:
        first = left(env)
        if first is True:
            return True
        second = right(env)
        if second is True:
            return True
        return None if first is None or second is None else False

    return disjunction


def _or_column(left: Vector, right: Vector) -> Vector:
    fallback = left.fallback
    if right.fallback is not None:
        fallback = or_masks(fallback, right.fallback & ~true_rows(left))
    if left.valid is None and right.valid is None:
        return Vector(t.BOOLEAN, left.data | right.data, None, fallback)
    true = true_rows(left) | true_rows(right)
    return Vector(t.BOOLEAN, true, true | (_is_false(left) & _is_false(right)), fallback)


# -- CASE -------------------------------------------------------------------------------------------------


def case_row(branches: list[tuple[Getter, Getter]], default: Getter) -> Getter:
    def value(env: Any) -> object:
        for when, then in branches:
            if when(env) is True:
                return then(env)
        return default(env)

    return value


def case_column(type_: Type) -> Free:
    """Return the kernel of CASE. Its inputs alternate conditions and values.

    An odd last input is the default.
    """
    null = null_constant(type_)

    def choose(*parts: Vector) -> Vector:
        """Apply the branches of CASE in reverse, so that earlier branches override later branches."""
        value = parts[-1] if len(parts) % 2 else null
        for index in range(len(parts) // 2 * 2 - 2, -1, -2):
            when = parts[index]
            value = _where(true_rows(when), parts[index + 1], value, type_)
            if when.fallback is not None:
                value = replace(value, fallback=or_masks(when.fallback, value.fallback))
        return value

    return choose


def _where(mask: Bools, then: Vector, otherwise: Vector, type_: Type) -> Vector:
    """Return `then` where the mask is set and `otherwise` elsewhere.

    Each row has the fallback flag of the selected side.
    """
    if _is_null_constant(then):
        return _null_outside(~mask, otherwise, type_)
    if _is_null_constant(otherwise):
        return _null_outside(mask, then, type_)
    fallback: Bools | None = None
    if then.fallback is not None:
        fallback = then.fallback & mask
    if otherwise.fallback is not None:
        fallback = or_masks(fallback, otherwise.fallback & ~mask)
    valid: Bools | None = None
    if then.valid is not None or otherwise.valid is not None:
        valid = np.where(
            mask,
            True if then.valid is None else then.valid,
            True if otherwise.valid is None else otherwise.valid,
        )
    return Vector(type_, choose_values(mask, then.data, otherwise.data, type_), valid, fallback)


def _is_null_constant(vector: Vector) -> bool:
    """Return True for the constant NULL."""
    valid = vector.valid
    return (
        valid is not None
        and valid.ndim == 0
        and not valid
        and vector.fallback is None
        and is_constant(vector)
    )


def _null_outside(mask: Bools, vector: Vector, type_: Type) -> Vector:
    """Return the vector with NULL outside the mask."""
    fallback = None if vector.fallback is None else vector.fallback & mask
    return Vector(type_, vector.data, and_masks(vector.valid, mask), fallback)


# -- COALESCE ---------------------------------------------------------------------------------------------


def _coalesce_row(*getters: Getter) -> Getter:
    def first_known(env: Any) -> object:
        for getter in getters:
            value = getter(env)
            if value is not None:
                return value
        return None

    return first_known


def _coalesce_column(call: KernelCall) -> Kernel:
    def first_known(*parts: Vector) -> Vector:
        value = parts[-1]
        for part in parts[-2::-1]:
            if part.valid is None and part.fallback is None:
                value = part
                continue
            known = np.asarray(True) if part.valid is None else part.valid
            if part.fallback is not None:
                known = known | part.fallback  # the row fails, so later arguments are not used
            value = _where(known, part, value, call.result)
        return value

    return Kernel(first_known, strict=False)


# -- functions that are rewritten to CASE or COALESCE -------------------------------------------------------


def _if(call: Call) -> Case:
    condition, then, otherwise = call.arguments
    return Case(((condition, then),), otherwise, call.type)


def _nvl2(call: Call) -> Case:
    tested, then, otherwise = call.arguments
    return Case(((Call("isnotnull", (tested,), t.BOOLEAN), then),), otherwise, call.type)


def _nullif(call: Call) -> Case:
    value, other = call.arguments
    equal = Call("=", (value, other), t.BOOLEAN)
    return Case(((equal, Literal(None, t.NULL)),), value, call.type)


def _coalesce(call: Call) -> Call:
    return Call("coalesce", call.arguments, call.type)


LOGIC: dict[str, ScalarFunction] = {
    "and": ScalarFunction(row=plain(_and_row), lazy=True, column=free_kernel(_and_column), duckdb=SAME),
    "or": ScalarFunction(row=plain(_or_row), lazy=True, column=free_kernel(_or_column), duckdb=SAME),
    "not": ScalarFunction(
        row=plain(operator.not_),
        column=kernel(np.logical_not),
        source=lambda _types, _result, _machine: lambda a: Snippet(f"(not {a})"),
        duckdb=SAME,
    ),
    "coalesce": ScalarFunction(
        row=plain(_coalesce_row), takes=as_result, lazy=True, column=_coalesce_column, duckdb=SAME
    ),
}

LOGIC_ABBREVIATIONS: dict[str, Abbreviation] = {
    "if": Abbreviation(_if, duckdb="CASE WHEN {0} THEN {1} ELSE {2} END"),
    "ifnull": Abbreviation(_coalesce, duckdb=SAME),
    "nullif": Abbreviation(_nullif, duckdb=SAME),
    "nvl": Abbreviation(_coalesce, duckdb="coalesce({0}, {1})"),
    "nvl2": Abbreviation(_nvl2, duckdb="CASE WHEN {0} IS NOT NULL THEN {1} ELSE {2} END"),
}

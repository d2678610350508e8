"""Logic and choice: AND, OR, CASE and their kin, with SQL's unknown, over whole columns.

These are the forms that do not ask for all of their arguments on every row. Where an argument is not asked
for, its doubt (`Vector.unsure`) does not count: `CASE WHEN b <> 0 THEN a / b END` never fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.types import schema as t
from slicemill.esl.types.expression import Call, Case, Cast, Expr, is_null_literal
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.comparison_columns import equal
from slicemill.scalar.kernel import Free
from slicemill.scalar.vectors import (
    Data,
    Mask,
    Vector,
    arrow_type,
    boolean_array,
    both,
    dtype_of,
    either,
    held_by_arrow,
)

Form = tuple[tuple[Expr, ...], Free]


def form_of(expr: Expr) -> Form | None:
    """The arguments and the function of a form; None for what is an ordinary call."""
    if isinstance(expr, Case):
        return _case(expr)
    if isinstance(expr, Call) and expr.function in _FORMS:
        return _FORMS[expr.function](expr)
    return None


def converted(expr: Expr, target: Type) -> Expr:
    """The conversion that nobody writes."""
    return expr if expr.type == target or target.kind in (Kind.ANY, Kind.NULL) else Cast(expr, target)


def holds(vector: Vector) -> Mask:
    """Where a condition is true: neither false nor unknown."""
    return np.asarray(vector.data if vector.valid is None else vector.data & vector.valid)


def _is_false(vector: Vector) -> Mask:
    return np.asarray(~vector.data if vector.valid is None else ~vector.data & vector.valid)


def _and(left: Vector, right: Vector) -> Vector:
    unsure = left.unsure
    if right.unsure is not None:
        unsure = either(unsure, right.unsure & ~_is_false(left))
    if left.valid is None and right.valid is None:
        return Vector(t.BOOLEAN, left.data & right.data, None, unsure)
    true = holds(left) & holds(right)
    return Vector(t.BOOLEAN, true, true | _is_false(left) | _is_false(right), unsure)


def _or(left: Vector, right: Vector) -> Vector:
    unsure = left.unsure
    if right.unsure is not None:
        unsure = either(unsure, right.unsure & ~holds(left))
    if left.valid is None and right.valid is None:
        return Vector(t.BOOLEAN, left.data | right.data, None, unsure)
    true = holds(left) | holds(right)
    return Vector(t.BOOLEAN, true, true | (_is_false(left) & _is_false(right)), unsure)


def where(mask: Mask, then: Vector, otherwise: Vector, type_: Type) -> Vector:
    """One vector on some rows, the other on the rest; doubts are those of the side taken."""
    unsure: Mask | None = None
    if then.unsure is not None:
        unsure = then.unsure & mask
    if otherwise.unsure is not None:
        unsure = either(unsure, otherwise.unsure & ~mask)
    valid: Mask | None = None
    if then.valid is not None or otherwise.valid is not None:
        valid = np.where(
            mask,
            True if then.valid is None else then.valid,
            True if otherwise.valid is None else otherwise.valid,
        )
    return Vector(type_, _chosen(mask, then.data, otherwise.data, type_), valid, unsure)


def _chosen(mask: Mask, then: Data, otherwise: Data, type_: Type) -> Data:
    if held_by_arrow(type_):
        if np.ndim(mask) == 0:
            return then if mask else otherwise
        return pc.if_else(boolean_array(mask), then, otherwise)
    if type_.kind is Kind.PERIOD:
        return np.where(np.expand_dims(mask, -1), then, otherwise)
    return np.where(mask, then, otherwise)


def _case(expr: Case) -> Form:
    parts = [part for when, then in expr.branches for part in (when, converted(then, expr.type))]
    if not is_null_literal(expr.default):
        parts.append(converted(expr.default, expr.type))
    return tuple(parts), _choice(expr.type)


def _choice(type_: Type) -> Free:
    null = nothing(type_)

    def choose(*parts: Vector) -> Vector:
        """Later branches first: each one is overridden where the condition before it holds."""
        value = parts[-1] if len(parts) % 2 else null
        for index in range(len(parts) // 2 * 2 - 2, -1, -2):
            when = parts[index]
            value = where(holds(when), parts[index + 1], value, type_)
            value = replace(value, unsure=either(when.unsure, value.unsure))
        return value

    return choose


def nothing(type_: Type) -> Vector:
    """NULL, of a type."""
    never = np.asarray(False)
    if held_by_arrow(type_):
        return Vector(type_, pa.scalar(None, arrow_type(type_)), never)
    shape = (2,) if type_.kind is Kind.PERIOD else ()
    return Vector(type_, np.zeros(shape, dtype_of(type_)), never)


def _if(call: Call) -> Form:
    condition, then, otherwise = call.arguments
    return _case(Case(((condition, then),), otherwise, call.type))


def _nvl2(call: Call) -> Form:
    tested, then, otherwise = call.arguments
    known = Call("isnotnull", (tested,), t.BOOLEAN)
    return _case(Case(((known, then),), otherwise, call.type))


def _coalesce(call: Call) -> Form:
    type_ = call.type

    def first_known(*parts: Vector) -> Vector:
        value = parts[-1]
        for part in parts[-2::-1]:
            if part.valid is None and part.unsure is None:
                value = part
                continue
            known = np.asarray(True) if part.valid is None else part.valid
            if part.unsure is not None:
                known = known | part.unsure  # its doubt is ours, whatever stands behind it
            value = where(known, part, value, type_)
        return value

    return tuple(converted(argument, type_) for argument in call.arguments), first_known


def _nullif(call: Call) -> Form:
    value, other = call.arguments
    shared = t.common(value.type, other.type) or value.type
    same = equal(shared)

    def unless_equal(kept: Vector, left: Vector, right: Vector) -> Vector:
        unsure = either(either(kept.unsure, left.unsure), right.unsure)
        hit = both(both(left.valid, right.valid), same(left.data, right.data))
        assert hit is not None
        return Vector(call.type, kept.data, both(kept.valid, ~hit), unsure)

    return (value, converted(value, shared), converted(other, shared)), unless_equal


def _logical(function: Free) -> Callable[[Call], Form]:
    return lambda call: (call.arguments, function)


_FORMS: dict[str, Callable[[Call], Form]] = {
    "and": _logical(_and),
    "or": _logical(_or),
    "if": _if,
    "nvl2": _nvl2,
    "coalesce": _coalesce,
    "ifnull": _coalesce,
    "nvl": _coalesce,
    "nullif": _nullif,
}

"""Comparison, membership and tests for NULL over whole columns.

Among doubles NaN equals itself and is larger than everything else, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.kernel import VARIES, Bound, Kernel, Maker, Strict, free, plain
from slicemill.scalar.vectors import (
    Data,
    Mask,
    Vector,
    arrow_type,
    boolean_array,
    both,
    either,
    held_by_arrow,
    numbers,
)

Test = Callable[[Any, Any], Mask]

_FEW = 6  # choices up to which comparing one by one beats looking them up


def on_arrow(function: Callable[..., pa.Array | pa.Scalar], *arguments: Data) -> Mask:
    """A test of Arrow's as a mask; that of a NULL is arbitrary."""
    found = function(*arguments)
    return np.asarray(bool(found.as_py())) if isinstance(found, pa.Scalar) else numbers(found)


def equal(type_: Type) -> Test:
    if type_.kind is Kind.DOUBLE:
        return lambda a, b: (a == b) | ((a != a) & (b != b))
    if held_by_arrow(type_):
        return lambda a, b: on_arrow(pc.equal, a, b)
    if type_.kind is Kind.PERIOD:
        return lambda a, b: (a == b).all(axis=-1)
    return np.equal


def less(type_: Type) -> Test:
    if type_.kind is Kind.DOUBLE:
        return lambda a, b: ~(a >= b) & (a == a)
    if held_by_arrow(type_):
        return lambda a, b: on_arrow(pc.less, a, b)
    return np.less


def _exactly(make: Maker) -> Maker:
    """Decimals of different digits compare as they are, which no one type holds: left to the reference."""

    def checked(bound: Bound) -> Kernel | Strict | None:
        mixed = len(set(bound.types)) > 1 and any(type_.kind is Kind.DECIMAL for type_ in bound.types)
        return None if mixed else make(bound)

    return checked


def _equality(bound: Bound) -> Kernel:
    return Kernel(equal(bound.types[0]))


def _inequality(bound: Bound) -> Kernel:
    same = equal(bound.types[0])
    return Kernel(lambda a, b: ~same(a, b))


def _order(name: str) -> Maker:
    """One of < <= > >=; all of them are `less` with sides swapped or answers turned round."""
    on_numbers: dict[str, Test] = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
    }
    on_texts = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}

    def make(bound: Bound) -> Kernel:
        type_ = bound.types[0]
        if held_by_arrow(type_):
            return Kernel(lambda a, b: on_arrow(on_texts[name], a, b))
        if type_.kind is not Kind.DOUBLE:
            return Kernel(on_numbers[name])
        before = less(type_)
        if name == "<":
            return Kernel(before)
        if name == ">":
            return Kernel(lambda a, b: before(b, a))
        if name == "<=":
            return Kernel(lambda a, b: ~before(b, a))
        return Kernel(lambda a, b: ~before(a, b))

    return make


def _null_safe(bound: Bound) -> Kernel:
    same = equal(bound.types[0])

    def equal_or_both_null(left: Vector, right: Vector) -> Vector:
        unsure = either(left.unsure, right.unsure)
        found = same(left.data, right.data)
        if left.valid is not None or right.valid is not None:
            known_left = np.asarray(True) if left.valid is None else left.valid
            known_right = np.asarray(True) if right.valid is None else right.valid
            found = (found & known_left & known_right) | ~(known_left | known_right)
        return Vector(t.BOOLEAN, found, None, unsure)

    return Kernel(equal_or_both_null, strict=False)


def _in(bound: Bound) -> Kernel:
    type_ = bound.types[0]
    choices = bound.values[1:]
    constants = [choice for choice in choices if choice is not None and choice is not VARIES]
    sought = _lookup(type_, constants) if VARIES not in choices and len(constants) > _FEW else None
    same = equal(type_)

    def member(value: Vector, *others: Vector) -> Vector:
        unsure = reduce(either, (vector.unsure for vector in (value, *others)))
        if sought is not None:
            hit = sought(value.data)
        else:
            hit = np.asarray(False)
            for other in others:
                found = same(value.data, other.data)
                hit = hit | (found if other.valid is None else found & other.valid)
        for other in others:
            if other.valid is not None:
                value = Vector(type_, value.data, both(value.valid, hit | other.valid))
        return Vector(t.BOOLEAN, hit, value.valid, unsure)

    return Kernel(member, strict=False)


def _lookup(type_: Type, choices: list[Any]) -> Callable[[Data], Mask] | None:
    if held_by_arrow(type_):
        values = pa.array(choices, arrow_type(type_))
        return lambda data: on_arrow(pc.is_in, data, values)
    if type_.kind in (Kind.DOUBLE, Kind.PERIOD):
        return None
    known = np.array(choices)
    return lambda data: np.isin(data, known)


def _extreme(largest: bool) -> Maker:
    def make(bound: Bound) -> Kernel | None:
        type_ = bound.result
        if type_.kind is Kind.PERIOD:
            return None
        before = less(type_)

        def extreme(*vectors: Vector) -> Vector:
            best = vectors[0]
            for vector in vectors[1:]:
                wins = before(best.data, vector.data) if largest else before(vector.data, best.data)
                if vector.valid is not None:
                    wins = wins & vector.valid
                if best.valid is not None:
                    wins = wins | ~best.valid
                data = _taken(wins, vector.data, best.data, type_)
                valid = None
                if best.valid is not None and vector.valid is not None:
                    valid = best.valid | vector.valid
                best = Vector(type_, data, valid, either(best.unsure, vector.unsure))
            return best

        return Kernel(extreme, strict=False)

    return make


def _taken(wins: Mask, winner: Data, loser: Data, type_: Type) -> Data:
    if held_by_arrow(type_):
        if wins.ndim == 0:
            return winner if wins else loser
        return pc.if_else(boolean_array(wins), winner, loser)
    return np.where(wins, winner, loser)


def _is_null(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, ~_known(vector), None, vector.unsure)


def _is_not_null(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, _known(vector), None, vector.unsure)


def _known(vector: Vector) -> Mask:
    return np.asarray(True) if vector.valid is None else vector.valid


def _is_nan(vector: Vector) -> Vector:
    return Vector(t.BOOLEAN, np.isnan(vector.data) & _known(vector), None, vector.unsure)


COMPARISON: dict[str, Maker] = {
    "=": _exactly(_equality),
    "<>": _exactly(_inequality),
    "<": _exactly(_order("<")),
    "<=": _exactly(_order("<=")),
    ">": _exactly(_order(">")),
    ">=": _exactly(_order(">=")),
    "<=>": _exactly(_null_safe),
    "in": _exactly(_in),
    "not": plain(np.logical_not),
    "greatest": _extreme(largest=True),
    "least": _extreme(largest=False),
    "isnull": free(_is_null),
    "isnotnull": free(_is_not_null),
    "isnan": free(_is_nan),
}

"""One call of every scalar function and operator for each combination of argument types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa

from slicemill import types as t
from slicemill.catalog.expressions import Call, Cast, ColumnRef, Expr, Literal
from slicemill.columns.arrow_schema import to_arrow
from slicemill.functions.signatures import SCALARS, Signature, arithmetic_type, castable, fits, result_type
from slicemill.types import Column, Kind, Schema, Type

_MONEY = t.decimal(12, 2)
SCHEMA = Schema(
    (
        Column("i", t.INT),
        Column("b", t.BIGINT),
        Column("v", t.DOUBLE),
        Column("d", _MONEY),
        Column("e", t.decimal(18, 4)),
        Column("text", t.VARCHAR),
        Column("truth", t.BOOLEAN),
        Column("ts", t.TIMESTAMP),
        Column("day", t.DATE),
    )
)
_COLUMNS = {column.name: ColumnRef(column.name, column.type) for column in SCHEMA}
_NUMBERS = ("i", "b", "v", "d")
_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "&", "|", "^")
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_PLACES = {
    "number": _NUMBERS,
    "int": ("i",),
    "integer": ("i", "b"),
    "string": ("text",),
    "boolean": ("truth",),
}
_TIMES = {"time": ("ts", "day"), "timestamp": ("ts",)}
_KINDS = ("i", "b", "v", "d", "text", "truth", "ts", "day")
_CONSTANTS: dict[str, tuple[str | int | None, ...]] = {
    "date_trunc": ("DAY",),
    "trunc": (None, "MM"),
    "extract": ("DAY",),
    "date_part": ("DAY",),
    "rlike": (None, "^t1.*9$"),
    "regexp_like": (None, "^t1.*9$"),
    "regexp_replace": (None, "1+", "x"),
    "regexp_extract": (None, "t(1+)", 1),
    "split_part": (None, "1", 1),
    "substring_index": (None, "1", 1),
    "date_format": (None, "yyyy-MM-dd"),
    "to_date": (None, "yyyy-MM-dd"),
    "to_timestamp": (None, "yyyy-MM-dd"),
    "round": (None, 1),
    "sha2": (None, 256),
    "get_json_object": (None, "$.a"),
    "repeat": (None, 2),
    "lpad": (None, 12, "x"),
    "rpad": (None, 12, "x"),
    "substring": (None, 2, 3),
    "substr": (None, 2, 3),
    "left": (None, 3),
    "right": (None, 3),
    "replace": (None, "1", "x"),
    "translate": (None, "12", "xy"),
    "instr": (None, "1"),
    "locate": ("1",),
    "contains": (None, "1"),
    "startswith": (None, "t1"),
    "endswith": (None, "9"),
}


def rows(count: int) -> pa.Table:
    """Return rows of `SCHEMA` with distinct values."""
    numbers = np.arange(count, dtype=np.int64) * 7_919 + 1_013
    words = np.zeros((count, 2), np.int64)
    words[:, 0] = numbers
    us = 1_600_000_000_000_000 + numbers * 1_000_003
    return pa.table(
        [
            pa.array((numbers % 2**31).astype(np.int32)),
            pa.array(numbers),
            pa.array(numbers / 100.0),
            *(
                pa.Array.from_buffers(pa.decimal128(*digits), count, [None, pa.py_buffer(words)])
                for digits in ((12, 2), (18, 4))
            ),
            pa.array([f"t{number}" for number in numbers.tolist()]),
            pa.array(numbers % 2 == 0),
            pa.array(us, pa.timestamp("us", tz="UTC")),
            pa.array((us // 86_400_000_000).astype(np.int32), pa.date32()),
        ],
        schema=to_arrow(SCHEMA),
    )


def calls() -> Iterator[Expr]:
    """Yield all calls: operators, comparisons, casts, and library functions."""
    for name, left, right in product(_ARITHMETIC, _KINDS, _KINDS):
        one, other = _COLUMNS[left], _COLUMNS[right]
        if (type_ := arithmetic_type(name, one.type, other.type)) is not None:
            yield Call(name, (one, other), type_)
    for name in _ARITHMETIC:
        for factor in (_literal("1.19", t.decimal(3, 2)), Literal(3, t.INT), _COLUMNS["e"]):
            if (type_ := arithmetic_type(name, _MONEY, factor.type)) is not None:
                yield Call(name, (_COLUMNS["d"], factor), type_)
    for name, left, right in product(_COMPARISONS, _KINDS, _KINDS):
        one, other = _COLUMNS[left], _COLUMNS[right]
        if left <= right and t.common(one.type, other.type) is not None:
            yield Call(name, (one, other), t.BOOLEAN)
    for name in _COMPARISONS:
        yield Call(name, (_COLUMNS["d"], _literal("100.00", t.decimal(5, 2))), t.BOOLEAN)
    yield Call("in", (_COLUMNS["d"], *(Literal(n, t.INT) for n in (1, 2, 3))), t.BOOLEAN)
    for column in _COLUMNS.values():
        for target in (
            t.INT,
            t.BIGINT,
            t.DOUBLE,
            t.decimal(20, 4),
            t.decimal(20, 1),
            t.VARCHAR,
            t.BOOLEAN,
            t.TIMESTAMP,
            t.DATE,
        ):
            if (
                column.type != target
                and column.type.kind is not Kind.VARCHAR
                and castable(column.type, target)
            ):
                yield Cast(column, target)
    for number in _NUMBERS:
        yield Call("negative", (_COLUMNS[number],), _COLUMNS[number].type)
    for name, pattern in (("like", "t1%9"), ("like", "%12%"), ("ilike", "T1%"), ("rlike", "^t1.*9$")):
        yield Call(name, (_COLUMNS["text"], Literal(pattern, t.VARCHAR)), t.BOOLEAN)
    for name, signature in SCALARS.items():
        yield from _of_function(name, signature)


def _of_function(name: str, signature: Signature) -> Iterator[Expr]:
    least = len(signature.parameters) - signature.optional
    constants = _CONSTANTS.get(name, ())
    constants += (None,) * (max(1, least) - len(constants))
    if not signature.parameters:
        return
    choices: list[Sequence[Expr]] = []
    for place, constant in enumerate(constants[: len(signature.parameters)]):
        parameter = signature.parameter(place)
        if constant is not None:
            choices.append([Literal(constant, t.VARCHAR if isinstance(constant, str) else t.INT)])
        else:
            names = _PLACES.get(parameter) or _TIMES.get(parameter) or _KINDS
            choices.append([_COLUMNS[column] for column in names])
    for arguments in product(*choices):
        columns = {argument.name for argument in arguments if isinstance(argument, ColumnRef)}
        if len(columns) > 1 and signature.parameter(0) == signature.parameter(1):
            continue  # both arguments have one kind, so combinations add nothing
        if all(fits(signature.parameter(i), a.type) for i, a in enumerate(arguments)):
            type_ = result_type(signature, list(arguments))
            if type_ is not None:
                yield Call(name, arguments, type_)


def _literal(text: str, type_: Type) -> Literal:
    return Literal(Decimal(text), type_)

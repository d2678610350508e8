"""Arrow columns of every type under every declared type: widened, narrowed value by value, or bad.

The oracle below computes for one Python value the result of the table of types in docs/runtime.md.
"""

from __future__ import annotations

from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.connectors.spellings import TYPES, comparable

from slicemill import types as t
from slicemill.ingest.formats.values import from_column, from_texts
from slicemill.types import Kind, TimestampUnit, Type

BAD = "bad"
EPOCH = date(1970, 1, 1)
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": Fraction(1, 1_000)}
DECLARED = {
    TimestampUnit.SECONDS: UNITS["s"],
    TimestampUnit.MILLIS: UNITS["ms"],
    TimestampUnit.MICROS: UNITS["us"],
    TimestampUnit.NANOS: UNITS["ns"],
}
FIRST_US = (date.min - EPOCH) // timedelta(microseconds=1)
LAST_US = (date.max - EPOCH) // timedelta(microseconds=1) + 86_400_000_000 - 1

Value = Any


def integers(bits: int, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [edge for edge in (low, high, 0, 1, 2**31 - 1, -(2**31) - 1, 10**15) if low <= edge <= high]
    return st.integers(low, high) | st.sampled_from(edges)


HUNDREDTHS = st.integers(-(10**30), 10**30).map(lambda number: Decimal(f"{number}e-2"))
SOURCES: dict[str, tuple[pa.DataType, st.SearchStrategy[Value]]] = {
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), integers(bits, True)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), integers(bits, False)) for bits in (8, 16, 32, 64)},
    "half": (pa.float16(), st.floats(width=16)),
    "float": (pa.float32(), st.floats(width=32)),
    "double": (pa.float64(), st.floats() | st.integers(-(2**54), 2**54).map(float)),
    "decimal": (pa.decimal128(12, 4), st.decimals(-(10**8) + 1, 10**8 - 1, places=4)),
    "long decimal": (pa.decimal128(38, 0), st.integers(-(10**37), 10**37).map(Decimal)),
    "longer decimal": (
        pa.decimal256(50, 2),
        HUNDREDTHS,
    ),
    "flag": (pa.bool_(), st.booleans()),
    "day": (pa.date32(), st.dates()),
    "date in ms": (pa.date64(), st.dates()),
    **{f"time in {unit}": (pa.timestamp(unit), integers(64, True)) for unit in UNITS},
    **{f"zoned in {unit}": (pa.timestamp(unit, "Asia/Tokyo"), integers(64, True)) for unit in UNITS},
}


def array_of(values: list[Value], type_: pa.DataType) -> pa.Array:
    if type_ == pa.float16():
        return pa.array([None if value is None else np.float16(value) for value in values], type_)
    if pa.types.is_timestamp(type_):
        return pa.array(values, pa.int64()).cast(type_)
    return pa.array(values, type_)


def expected(value: Value, source: pa.DataType, type_: Type) -> Value:
    """Return a value of an Arrow type as a value of a declared type, or `BAD`."""
    if value is None:
        return None
    if pa.types.is_timestamp(source):
        us = int(value * UNITS[source.unit] // 1)
        return us if type_.kind is Kind.TIMESTAMP and FIRST_US <= us <= LAST_US else BAD
    if isinstance(value, date):
        return _of_day(value, type_)
    if isinstance(value, bool):
        return {Kind.BOOLEAN: value, **_texts("true" if value else "false", type_)}.get(type_.kind, BAD)
    if type_.kind is Kind.DOUBLE:
        return float(value)
    if type_.kind in (Kind.INT, Kind.BIGINT, Kind.INTERVAL):
        return _within(_whole(value), 2 ** (31 if type_.kind is Kind.INT else 63))
    if type_.kind is Kind.TIMESTAMP:
        number = _within(_whole(value), 2**63) if type_.unit is not None else BAD
        us = number if number == BAD or type_.unit is None else int(number * DECLARED[type_.unit] // 1)
        return us if us != BAD and FIRST_US <= us <= LAST_US else BAD
    if type_.kind is Kind.DECIMAL:
        return _decimal(value, type_)
    text = f"{value:f}" if isinstance(value, Decimal) else str(value)
    return {Kind.BOOLEAN: {"1": True, "0": False}.get(text, BAD), **_texts(text, type_)}.get(type_.kind, BAD)


def _whole(value: Value) -> Value:
    if isinstance(value, float) and not (value.is_integer() and abs(value) <= 2**53):
        return BAD
    return int(value) if value == int(value) else BAD


def _within(number: Value, limit: int) -> Value:
    return number if number != BAD and -limit <= number < limit else BAD


def _decimal(value: Value, type_: Type) -> Value:
    assert type_.precision is not None and type_.scale is not None
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        return BAD
    with localcontext(prec=1_000):
        rounded = exact.quantize(Decimal(1).scaleb(-type_.scale), ROUND_HALF_UP)
        return rounded if abs(rounded) < 10 ** (type_.precision - type_.scale) else BAD


def _of_day(day: date, type_: Type) -> Value:
    number = (day - EPOCH).days
    times = {Kind.DATE: number, Kind.TIMESTAMP: number * 86_400_000_000}
    return {**times, **_texts(str(day), type_)}.get(type_.kind, BAD)


def _texts(text: str, type_: Type) -> dict[Kind, Value]:
    fits = type_.length is None or len(text) <= type_.length
    return {Kind.VARCHAR: text if fits else BAD, Kind.BINARY: text.encode()}


def is_told(source: pa.DataType, type_: Type) -> bool:
    """Return False for numbers with fractions and times declared as strings, which other tests cover."""
    spelled = pa.types.is_floating(source) or pa.types.is_timestamp(source)
    return not (spelled and type_.kind in (Kind.VARCHAR, Kind.BINARY, Kind.BOOLEAN))


def found(column: pa.Array, type_: Type) -> list[Value]:
    made = from_column(column, type_)
    made.array.validate(full=True)
    plain = {pa.date32(): pa.int32(), pa.duration("us"): pa.int64()}
    whole = pa.int64() if pa.types.is_timestamp(made.array.type) else plain.get(made.array.type)
    values = made.array.to_pylist() if whole is None else made.array.cast(whole).to_pylist()
    assert all(values[place] is None for place in made.bad)
    return [BAD if place in made.bad else value for place, value in enumerate(values)]


@pytest.mark.parametrize("name", SOURCES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_arrow_type_converts_to_every_declared_type(name: str, data: st.DataObject) -> None:
    source, values = SOURCES[name]
    drawn = data.draw(st.lists(st.none() | values, max_size=30))
    column = array_of(drawn, source)
    for type_ in TYPES:
        if is_told(source, type_):
            want = [comparable(expected(value, source, type_)) for value in drawn]
            assert [comparable(value) for value in found(column, type_)] == want, type_


@settings(max_examples=40, deadline=None)
@given(numbers=st.lists(st.none() | st.integers(-(10**9), 10**11), max_size=40))
@example([2**31 - 1] * 40 + [2**31])
def test_one_number_out_of_range_is_bad_and_other_numbers_stay(numbers: list[int | None]) -> None:
    want = [None if n is None else n if -(2**31) <= n < 2**31 else BAD for n in numbers]
    assert found(pa.array(numbers, pa.int64()), t.INT) == want


TEXTS = ["1", "2.0", "x", None, "2026-01-31", "true", "1"]


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_strings_convert_from_every_arrow_string_type(type_: Type) -> None:
    plain = from_texts(pa.array(TEXTS), type_)
    forms = (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))
    for form in (*forms, pa.dictionary(pa.int32(), pa.large_string())):
        made = from_column(pa.array(TEXTS).cast(form), type_)
        assert (made.array.to_pylist(), made.bad) == (plain.array.to_pylist(), plain.bad), form


NESTED = [
    pa.array([[1], None, []], pa.list_(pa.int32())),
    pa.array([{"a": 1}, None, {"a": None}], pa.struct([("a", pa.int32())])),
    pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    pa.array([1, None, 2], pa.time64("us")),
    pa.array([b"\xff", None, b"a"], pa.large_binary()),
    pa.array([b"ab", None, b"cd"], pa.binary(2)),
    pa.nulls(3),
]


@pytest.mark.parametrize("column", NESTED, ids=lambda column: str(column.type))
@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_a_nested_value_is_bad_under_a_scalar_type(column: pa.Array, type_: Type) -> None:
    made = from_column(column, type_)
    made.array.validate(full=True)
    assert len(made.array) == 3 and 1 not in made.bad

"""Values of every type that panes keep figures of, among them those that are easily got wrong."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall
from slicemill.columns.rows import column_values
from slicemill.functions.vectors import arrow_type
from slicemill.types import Column, Kind, Type

doubles = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, -math.inf]),
    st.sampled_from([0.1, 1e16, -1e16, 1e300, 1.7e308, -1.7e308, 5e-324]),
    st.integers(-500, 500).map(lambda cents: cents / 100),
    st.floats(),
)


def whole(bits: int) -> st.SearchStrategy[int]:
    limit = 2 ** (bits - 1)
    return st.one_of(st.integers(-3, 3), st.integers(-limit, limit - 1), st.sampled_from([-limit, limit - 1]))


def decimals(type_: Type) -> st.SearchStrategy[Decimal]:
    """Digits of any number, up to the precision."""
    assert type_.precision is not None and type_.scale is not None
    limit, scale = 10**type_.precision - 1, type_.scale
    digits = st.one_of(st.integers(-999, 999), st.integers(-limit, limit), st.sampled_from([-limit, limit]))
    return digits.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


VALUES: dict[Type, st.SearchStrategy[Any]] = {
    t.BOOLEAN: st.booleans(),
    t.INT: whole(32),
    t.BIGINT: whole(64),
    t.DOUBLE: doubles,
    t.VARCHAR: st.sampled_from(["", "a", "b", "ab", "ä", "Z", "\U0001f600", "\uffff"]),
    t.BINARY: st.binary(max_size=2),
    t.TIMESTAMP: whole(64),
    t.DATE: whole(32),
    t.INTERVAL: whole(64),
    **{type_: decimals(type_) for type_ in (t.decimal(5, 2), t.decimal(20, 0), t.decimal(38, 2))},
}
NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE, Kind.DECIMAL)


def call(name: str, type_: Type, column: str = "x", result: str = "r") -> AggregateCall:
    """A call of a built-in on a column of this type."""
    return AggregateCall(
        name, (ColumnRef(column, type_),), False, (Column(result, BUILTINS[name].result(type_)),)
    )


def arrow(values: list[Any], type_: Type) -> pa.Array:
    return pa.array(values, arrow_type(type_))


def plain(array: pa.Array | pa.ChunkedArray, type_: Type) -> list[Any]:
    """A column's values, times as whole numbers."""
    column = array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array], array.type)
    return column_values(column, type_)

"""Keys as numbers: equal exactly where the reference says so, whatever their types."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.functions.comparison import equality
from slicemill.functions.vectors import arrow_type
from slicemill.operators.join.hashing import hash_keys
from slicemill.types import BIGINT, BINARY, BOOLEAN, DATE, DOUBLE, TIMESTAMP, VARCHAR, Type, decimal

VALUES: dict[Type, st.SearchStrategy[object]] = {
    BIGINT: st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    BOOLEAN: st.booleans(),
    DOUBLE: st.floats() | st.sampled_from([0.0, -0.0, float("nan")]),
    VARCHAR: st.text(max_size=10) | st.sampled_from(["", "a", "\0", "a\0"]),
    BINARY: st.binary(max_size=20),
    DATE: st.integers(-3, 3),
    TIMESTAMP: st.integers(-3, 3),
    decimal(10, 2): st.integers(-3, 3).map(lambda n: Decimal(n) / 100),
}


@settings(max_examples=60)
@given(st.data())
def test_hashes_and_what_is_compared_beside_them_say_when_keys_are_equal(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    rows = data.draw(st.lists(st.tuples(*(VALUES[type_] | st.none() for type_ in types)), max_size=6))
    columns = [
        pa.chunked_array([_column([row[index] for row in rows], type_)]) for index, type_ in enumerate(types)
    ]
    hashed = hash_keys(columns, len(rows))
    valid = np.ones(len(rows), np.bool_) if hashed.valid is None else hashed.valid
    assert valid.tolist() == [None not in row for row in rows]
    compared = list(zip(*(column.to_pylist() for column in hashed.columns), strict=True)) or [()] * len(rows)
    for i in np.flatnonzero(valid):
        for j in np.flatnonzero(valid):
            equal = all(equality(t)(a, b) for t, a, b in zip(types, rows[i], rows[j], strict=True))
            assert equal == (hashed.hashes[i] == hashed.hashes[j] and compared[i] == compared[j])


def _column(values: list[object], type_: Type) -> pa.Array:
    kind = arrow_type(type_)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    return pa.array(values, pa.int32()).cast(kind) if pa.types.is_date32(kind) else pa.array(values, kind)


def test_hashes_stay_the_same_since_state_is_kept_by_them() -> None:
    numbers = hash_keys([pa.chunked_array([[0, 1, -1]])], 3).hashes.tolist()
    assert numbers == [16294208416658607535, 10451216379200822465, 16490336266968443936]
    texts = hash_keys([pa.chunked_array([["", "a", "a text of more than eight bytes"]])], 3).hashes.tolist()
    assert texts == [16294208416658607535, 6774081908283191102, 14604903151191354724]


@pytest.mark.parametrize("slice_", [slice(0, 2), slice(1, 4), slice(3, 4)])
def test_a_slice_of_a_column_hashes_like_its_values(slice_: slice) -> None:
    for values in ([1, 2, None, 4], ["a", "b", None, "d"], [Decimal(1), Decimal(2), None, Decimal(4)]):
        whole = hash_keys([pa.chunked_array([pa.array(values)])], 4).hashes[slice_].tolist()
        part = pa.array(values)[slice_.start : slice_.stop]
        found = hash_keys([pa.chunked_array([part])], len(part)).hashes.tolist()
        assert [h for h, v in zip(found, values[slice_], strict=True) if v is not None] == [
            h for h, v in zip(whole, values[slice_], strict=True) if v is not None
        ]

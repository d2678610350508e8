"""A column cast as a whole has the values of a cast of each string alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connectors.spellings import TYPES, comparable, texts

from slicemill import types as t
from slicemill.ingest.formats.values import TypedValues, convert_each, from_column, from_texts
from slicemill.types import Type

USUAL: dict[str, st.SearchStrategy[str]] = {
    "BOOLEAN": st.sampled_from(["true", "F", "1"]),
    "INT": st.integers(-(2**31), 2**31 - 1).map(str),
    "BIGINT": st.integers(-(2**63), 2**63 - 1).map(str),
    "DOUBLE": st.floats(allow_nan=False).map(str),
    "DECIMAL(6, 2)": st.decimals(-9999, 9999, places=2).map(str),
    "DECIMAL(38, 10)": st.decimals(-9999, 9999, places=4).map(str),
    "TIMESTAMP": st.datetimes().map(str),
    "TIMESTAMP SECONDS": st.integers(-(10**10), 10**11).map(str),
    "TIMESTAMP MILLIS": st.integers(-(10**14), 10**15).map(str) | st.datetimes().map(str),
    "TIMESTAMP MICROS": st.integers(-(10**17), 10**18).map(str),
    "TIMESTAMP NANOS": st.integers(-(2**63), 2**63 - 1).map(str),
    "DATE": st.dates().map(str),
    "INTERVAL": st.integers(0, 10**15).map(str),
}
instants = st.one_of(
    st.datetimes().map(lambda moment: moment.isoformat() + "Z"),
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
    st.sampled_from(
        ["0000-01-01T00:00Z", "2026-01-31T12Z", "2026-01-31 12", "2026-01-31T12:00+18:00", "0000-01-01"]
    ),
)


def plain(values: TypedValues) -> tuple[list[object], dict[int, str]]:
    array = values.array
    if pa.types.is_timestamp(array.type) or pa.types.is_duration(array.type):
        array = array.cast(pa.int64())
    return [comparable(value) for value in array.to_pylist()], values.bad


def assert_by_rule(column: list[str | None], type_: Type) -> None:
    found = from_texts(pa.array(column, pa.string()), type_)
    found.array.validate(full=True)
    assert plain(found) == plain(convert_each(list(column), type_))


@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("type_", TYPES, ids=str)
@given(data=st.data())
def test_columns_of_strings_convert_like_single_strings(type_: Type, data: st.DataObject) -> None:
    usual = USUAL.get(str(type_), texts)
    odd = texts if type_ is not t.TIMESTAMP else texts | instants
    column = data.draw(st.lists(st.none() | usual, max_size=60)) + data.draw(st.lists(odd, max_size=3))
    assert_by_rule(data.draw(st.permutations(column)), type_)


@settings(max_examples=60, deadline=None)
@given(column=st.lists(st.none() | instants, max_size=40))
def test_instants_with_and_without_offsets_convert_like_single_strings(column: list[str | None]) -> None:
    assert_by_rule(column, t.TIMESTAMP)


@pytest.mark.parametrize("type_", [t.INT, t.BIGINT, t.DOUBLE, t.TIMESTAMP, t.DATE, t.decimal(6, 2)], ids=str)
def test_one_bad_string_among_many_is_bad_alone(type_: Type) -> None:
    good = {"TIMESTAMP": "2026-01-31 12:00:00", "DATE": "2026-01-31"}.get(str(type_), "12")
    column = [good] * 1_000
    for bad in ("x", "2026-02-30", "99999999999999999999", "0x1F"):
        column[777] = bad
        found = from_texts(pa.array(column), type_)
        ruled = convert_each([bad], type_)
        assert found.bad == {777: ruled.bad[0]} if ruled.bad else not found.bad
        assert found.array[777].as_py() == ruled.array[0].as_py()
        assert found.array.null_count == ruled.array.null_count


NUMBERS = st.one_of(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=30).map(
        lambda v: pa.array(v, pa.int64())
    ),
    st.lists(st.none() | st.floats(), max_size=30).map(lambda v: pa.array(v, pa.float64())),
    st.lists(st.decimals(-(10**7), 10**7, places=4), max_size=30).map(
        lambda v: pa.array(v, pa.decimal128(12, 4))
    ),
)


@settings(max_examples=100, deadline=None)
@given(column=NUMBERS, type_=st.sampled_from(TYPES))
def test_columns_of_numbers_convert_like_single_numbers(column: pa.Array, type_: Type) -> None:
    assert plain(from_column(column, type_)) == plain(convert_each(column.to_pylist(), type_))


def test_nanosecond_timestamps_are_truncated_to_microseconds() -> None:
    column = pa.array([-1, -1_000, 1_999, None], pa.timestamp("ns", tz="Europe/Berlin"))
    assert plain(from_column(column, t.TIMESTAMP)) == ([-1, -1, 1, None], {})


def test_dictionary_and_large_strings_convert_like_strings() -> None:
    column = pa.array(["1", "2", "x"])
    for other in (column.dictionary_encode(), column.cast(pa.large_string())):
        assert plain(from_column(other, t.INT)) == ([1, 2, None], {2: "'x' is no INT"})

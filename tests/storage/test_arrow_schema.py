"""ESL types converted to Arrow types and back; stored tables start with the system columns."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from slicemill.columns.arrow_schema import (
    ARRIVAL,
    SEQ,
    TS,
    ArrowSchemaError,
    conform,
    from_arrow,
    is_system_column,
    to_arrow,
    with_system_columns,
)
from slicemill.types import ANY, BINARY, DATE, INT, PERIOD, TIMESTAMP, VARCHAR, Column, Schema


def test_dates_timestamps_and_periods_have_the_documented_arrow_types() -> None:
    schema = to_arrow(Schema((Column("d", DATE), Column("t", TIMESTAMP), Column("p", PERIOD))))
    assert str(schema.field("t").type) == "timestamp[us, tz=UTC]"
    assert str(schema.field("p").type) == "struct<begin: timestamp[us, tz=UTC], end: timestamp[us, tz=UTC]>"
    assert pa.array([date(1970, 1, 2)], schema.field("d").type).cast(pa.int32()).to_pylist() == [1]


def test_large_strings_have_the_esl_type_of_strings() -> None:
    schema = Schema((Column("text", VARCHAR), Column("raw", BINARY), Column("n", INT)))
    large = to_arrow(schema, large=True)
    assert [str(field.type) for field in large] == ["large_string", "large_binary", "int32"]
    assert from_arrow(large) == schema


@pytest.mark.parametrize("name", ["_ts", "_seq", "_ARR"])
def test_a_column_with_the_name_of_a_system_column_is_rejected(name: str) -> None:
    with pytest.raises(ArrowSchemaError, match="rename"):
        to_arrow(Schema((Column(name, INT),)))


def test_types_without_an_arrow_or_esl_equivalent_are_rejected_by_name() -> None:
    with pytest.raises(ArrowSchemaError, match="ANY"):
        to_arrow(Schema((Column("x", ANY),)))
    with pytest.raises(ArrowSchemaError, match="column x: no ESL type is like halffloat"):
        from_arrow(pa.schema([("x", pa.float16())]))


def test_system_columns_are_stored_first_and_are_not_esl_columns() -> None:
    schema = with_system_columns(to_arrow(Schema((Column("n", INT),))))
    assert schema.names == [TS, SEQ, ARRIVAL, "n"]
    assert from_arrow(schema) == Schema((Column("n", INT),))
    assert is_system_column("_seq") and not is_system_column("seq")


def test_missing_system_columns_are_filled_and_existing_values_stay() -> None:
    schema = with_system_columns(to_arrow(Schema((Column("n", INT),))))
    stored = pa.table({"n": pa.array([1, 2], pa.int64()), "_ts": pa.array([5, 6], pa.int64())})
    assert conform(stored, schema, arrival_us=80).to_pylist() == [
        {"_ts": 5, "_seq": 0, "_arr": 80, "n": 1},
        {"_ts": 6, "_seq": 0, "_arr": 80, "n": 2},
    ]
    with pytest.raises(ArrowSchemaError, match="_ts is missing"):
        conform(stored.select(["n"]), schema, arrival_us=80)


def test_a_column_that_was_not_stored_is_read_as_null() -> None:
    schema = with_system_columns(to_arrow(Schema((Column("n", INT), Column("m", INT)))))
    stored = pa.table({"_ts": pa.array([1, 1], pa.int64()), "n": pa.array([1, 2], pa.int32())})
    found = conform(stored, schema, arrival_us=80)
    assert found.column("m").to_pylist() == [None, None] and found.schema.equals(schema)

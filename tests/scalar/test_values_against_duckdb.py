"""Values of functions with an equivalent in DuckDB, by row and by column, without Spark."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from scalar.evaluation import INPUT, TABLE, TEXTS, bound, by_row, differences, names_in
from scalar.random_calls import NAMES, RELATIONS
from scalar.spark_cases import SCHEMA
from slicemill.errors import SlicemillError
from slicemill.functions.lists import LISTS
from slicemill.functions.render import render
from slicemill.functions.values import ExpressionError
from slicemill.types import Kind

# Cases with another meaning in DuckDB; `test_values_against_spark` compares these.
DEVIATIONS = {
    "decimals have other digits, or are divided as doubles": """
        m / o; o / m; n + q; n - q; n * q; n / q; m + n; n * m; q / m; m / i; n / i; n - l; m * m
        round(m, -9); CAST(d AS DECIMAL(20, 5)); CAST(d AS DECIMAL(38, 10)); CAST(ts AS DECIMAL(20, 6))""",
    "the least integer by -1 is an error": "i % j; i div j; l % k; mod(i, j); pmod(i, j); pmod(l, k)",
    "numbers at the edge become no integer or timestamp, and others round": """
        CAST(d AS BIGINT); CAST(i AS TIMESTAMP); CAST(n % 1000000 AS TIMESTAMP)
        CAST(d / 1000000 AS TIMESTAMP); timestamp_seconds(d % 100000)""",
    "intervals are cut to microseconds": "iv * d; iv / d; iv / l",
    "values are written otherwise": """
        CAST(d AS STRING); CAST(dt AS STRING); CAST(iv AS STRING); CAST(mo AS STRING)
        CAST(CAST(s AS BINARY) AS STRING); CAST(s AS BINARY) = CAST(u AS BINARY)""",
    "texts are read otherwise": """
        TRY_CAST(w AS INT); TRY_CAST(w AS BIGINT); TRY_CAST(w AS DOUBLE); TRY_CAST(w AS DECIMAL(10, 2))
        TRY_CAST(w AS DATE); TRY_CAST(w AS TIMESTAMP); CAST(w AS DOUBLE); CAST(w AS DECIMAL(8, 1))
        CAST(w AS DATE); CAST(w AS TIMESTAMP); to_date(w); to_timestamp(w)""",
    "an empty delimiter splits, and a negative length counts backwards": """
        split_part(s, u, i % 3); substr(s, i % 5, j % 4)""",
    "there is a capital ß": "upper(s)",
    "Java's patterns have more": "s RLIKE '\\p{Upper}'; regexp_extract(s, '(?<one>a)|b', 1)",
}
DIFFERENT = [
    text.strip()
    for texts in DEVIATIONS.values()
    for line in texts.split("\n")
    for text in line.split(";")
    if text.strip()
]

# Functions without an equivalent in DuckDB, or with deviating cases only.
ELSEWHERE = {
    *("shiftleft", "chr", "initcap", "levenshtein", "substring_index", "upper", "regexp_replace"),
    *("date_format", "from_unixtime", "make_timestamp", "to_date", "to_timestamp", "unix_timestamp"),
    "get_json_object",
    *("crc32", "hash", "sha2", "unhex", "xxhash64", "begin", "end", "period", "whole_units", *LISTS),
    *(relation for relation in RELATIONS if relation != "contains"),
}

_FROM_RAW = {
    Kind.TIMESTAMP: "make_timestamp({0})",
    Kind.INTERVAL: "to_microseconds({0})",
    Kind.MONTHS: "to_months({0})",
}
_TO_RAW = {
    Kind.TIMESTAMP: "epoch_us({0})",
    Kind.INTERVAL: "epoch_us({0})",
    Kind.DATE: "CAST({0} - DATE '1970-01-01' AS BIGINT)",
    Kind.MONTHS: "datepart('year', {0}) * 12 + datepart('month', {0})",
}


@pytest.fixture(scope="module")
def table() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    times = (Kind.TIMESTAMP, Kind.INTERVAL)
    arrays = {
        column.name: array.cast(pa.int64()) if column.type.kind in times else array
        for column, array in zip(SCHEMA, TABLE.columns, strict=True)
    }
    connection.register("raw_rows", pa.table({"id": pa.array(range(len(INPUT))), **arrays}))
    typed = ", ".join(
        _FROM_RAW.get(column.type.kind, "{0}").format(column.name) + f" AS {column.name}" for column in SCHEMA
    )
    connection.execute(f"CREATE TABLE rows AS SELECT id, {typed} FROM raw_rows")
    return connection


def answers(connection: duckdb.DuckDBPyConnection, text: str) -> list[object]:
    """Return DuckDB's values; NULL where slicemill has no value, so that DuckDB need not fail."""
    shown = _TO_RAW.get(bound(text).type.kind, "{0}").format(f"({render(bound(text), 'duckdb')})")
    failing = [str(n) for n, value in enumerate(by_row(text)) if isinstance(value, ExpressionError)]
    if failing:
        shown = f"CASE WHEN id NOT IN ({', '.join(failing)}) THEN {shown} END"
    return [value for (value,) in connection.execute(f"SELECT {shown} FROM rows ORDER BY id").fetchall()]


def has_a_name(text: str) -> bool:
    try:
        render(bound(text), "duckdb")
    except SlicemillError:
        return False
    return True


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_values_equal_those_of_duckdb(table: duckdb.DuckDBPyConnection, name: str) -> None:
    cases = [text for text in TEXTS if name in names_in(text) and text not in DIFFERENT and has_a_name(text)]
    assert cases, "a function without a case"
    different = [line for text in cases for line in differences(text, answers(table, text))]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("text", DIFFERENT)
def test_each_known_deviation_from_duckdb_still_deviates(table: duckdb.DuckDBPyConnection, text: str) -> None:
    """The list shrinks when DuckDB or slicemill changes."""
    try:
        agree = not differences(text, answers(table, text))
    except duckdb.Error:
        agree = False
    assert not agree

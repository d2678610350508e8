"""Typed expressions as ESL, Spark SQL and DuckDB SQL."""

from __future__ import annotations

import datetime
from decimal import Decimal

import duckdb
import pytest

from slicemill import types as t
from slicemill.binder import bind
from slicemill.catalog.expressions import Call, ColumnRef, Expr, Literal
from slicemill.catalog.queries import SelectQuery
from slicemill.errors import SlicemillError
from slicemill.functions.render import render

COLUMNS = (
    "i int, b bigint, p double, s varchar, d decimal(10, 2), t timestamp, day date, ok boolean, "
    '"order" int, "unit price" double, "say ""hi""" varchar'
)
CATALOG = bind(f"CREATE STREAM S({COLUMNS}) ORDER BY t").catalog


def bound(text: str) -> Expr:
    """Return the typed form of an expression over the stream S."""
    query = bind(f"SELECT {text} AS x FROM S", CATALOG).catalog.queries["query_1"].query
    assert isinstance(query, SelectQuery)
    return query.items[0].expr


@pytest.mark.parametrize(
    ("written", "rendered"),
    [
        ("price>1000 and (sellerID='x')", "price > 1000 AND sellerID = 'x'"),
        ("(price + 1) * 2 - (3 - price) > (4 * price)", "(price + 1) * 2 - (3 - price) > 4 * price"),
        ("(a and b) and (c or (b or a))", "a AND b AND (c OR b OR a)"),
        ("a or b and not c", "a OR b AND NOT c"),
        ("not (a and b)", "NOT (a AND b)"),
        ("price >= 1 and price <= 5 and a", "price BETWEEN 1 AND 5 AND a"),
        ("not price between 1 and 5", "price NOT BETWEEN 1 AND 5"),
        ("not price in (1, 2)", "price NOT IN (1, 2)"),
        ("not sellerID like 'a!%%' escape '!'", "sellerID NOT LIKE 'a!%%' ESCAPE '!'"),
        ("sellerID rlike '^a' or sellerID ilike 'B%'", "sellerID RLIKE '^a' OR sellerID ILIKE 'B%'"),
        ("not isnull(price) and isnull(a)", "price IS NOT NULL AND a IS NULL"),
        ("a is not true", "a IS NOT TRUE"),
        ("price is not distinct from 1 and price is distinct from 2",
         "price <=> 1 AND price IS DISTINCT FROM 2"),
        ("start_time > '2026-01-31 12:00'", "start_time > TIMESTAMP '2026-01-31 12:00:00'"),
        ("start_time - interval '300' second > start_time", "start_time - INTERVAL 5 MINUTES > start_time"),
        ("start_time + interval 12 months > start_time", "start_time + INTERVAL 1 YEAR > start_time"),
        ("day = '2026-01-31'", "day = DATE '2026-01-31'"),
        ("(itemID | 1) & 3 = 1", "(itemID | 1) & 3 = 1"),
        ("- (- itemID) = -5", "-(-itemID) = -5"),
        ("itemID - -5 = 0", "itemID - -5 = 0"),
        ("sellerID || 'it''s' = 'x'", "sellerID || 'it''s' = 'x'"),
        ("case itemID when 1 then a end", "CASE WHEN itemID = 1 THEN a END"),
        ("try_cast(sellerID as decimal(5,2)) > 1.5", "TRY_CAST(sellerID AS DECIMAL(5, 2)) > 1.5"),
        ("cast(start_time - start_time as interval minute) >= 3",
         "CAST(start_time - start_time AS INTERVAL MINUTE) >= 3"),
        ("extract(hour from start_time) = 3", "hour(start_time) = 3"),
        ("left(sellerID, 2) = 'ab'", "left(sellerID, 2) = 'ab'"),
        ('"order" = 1 and "two words" = 2', '"order" = 1 AND "two words" = 2'),
        ("(a = b) = c", "(a = b) = c"),
        ("period(start_time, start_time) met by period(start_time, start_time)",
         "period(start_time, start_time) MET BY period(start_time, start_time)"),
    ],
)  # fmt: skip
def test_rendered_esl_is_minimal_and_readable(written: str, rendered: str) -> None:
    declared = (
        "CREATE STREAM S(itemID int, sellerID char(10), price real, start_time timestamp, day date, "
        'a boolean, b boolean, c boolean, "order" int, "two words" int) ORDER BY start_time;'
    )
    query = bind(f"{declared} SELECT itemID FROM S WHERE {written}").catalog.queries["query_1"].query
    assert isinstance(query, SelectQuery) and query.where is not None
    assert render(query.where) == rendered


@pytest.mark.parametrize(
    ("written", "spark", "duckdb_sql"),
    [
        ("p > 0.9", "`p` > 0.9D", '"p" > 0.9e0'),
        ("p > -1e300", "`p` > -1e+300D", '"p" > -1e+300'),
        ("b = 4000000000", "`b` = 4000000000L", '"b" = 4000000000'),
        ("d < 1.5", "`d` < 1.5BD", "\"d\" < CAST('1.5' AS DECIMAL(2, 1))"),
        ("s = 'it''s a \\'", "`s` = 'it\\'s a \\\\'", "\"s\" = 'it''s a \\'"),
        ("s like 'a%'", "`s` LIKE 'a%'", "\"s\" LIKE 'a%' ESCAPE '\\'"),
        ("i <=> b", "`i` <=> `b`", '"i" IS NOT DISTINCT FROM "b"'),
        ("i ^ 3 | 1 = 1", "(`i` ^ 3) | 1 = 1", 'xor("i", 3) | 1 = 1'),
        ("t - interval 90 seconds < t", "`t` - INTERVAL '0 00:01:30.000000' DAY TO SECOND < `t`",
         '"t" - to_microseconds(90000000) < "t"'),
        ("cast(s as char(3)) = 'x'", "left(CAST(`s` AS STRING), 3) = 'x'",
         "left(CAST(\"s\" AS VARCHAR), 3) = 'x'"),
        ('"unit price" > 1 and "say ""hi""" is null', '`unit price` > 1 AND `say "hi"` IS NULL',
         '"unit price" > 1 AND "say ""hi""" IS NULL'),
        ("cast(p as int) = d div 2", "CAST(`p` AS INT) = `d` DIV 2",
         'CAST(trunc("p") AS INT) = CAST(trunc("d" / 2) AS BIGINT)'),
    ],
)  # fmt: skip
def test_spark_and_duckdb_get_their_own_syntax(written: str, spark: str, duckdb_sql: str) -> None:
    expr = bound(written)
    assert render(expr, "spark") == spark
    assert render(expr, "duckdb") == duckdb_sql


def test_a_qualified_column_is_one_name_in_sql_and_two_in_esl() -> None:
    column = ColumnRef("A.unit`price", t.DOUBLE)
    assert render(column) == 'A."unit`price"'
    assert render(column, "spark") == "`A.unit``price`"
    assert render(column, "duckdb") == '"A.unit`price"'


def test_an_aggregate_value_is_rendered_as_its_call() -> None:
    column = ColumnRef("avg(price * 1.5) OVER (ROWS 9 PRECEDING)", t.DOUBLE)
    assert render(Call(">", (column, Literal(1, t.INT)), t.BOOLEAN)) == f"{column.name} > 1"


@pytest.mark.parametrize("dialect", ["spark", "duckdb"])
def test_periods_have_no_sql_form(dialect: str) -> None:
    with pytest.raises(SlicemillError, match="periods"):
        render(bound("begin(period(t, t))"), dialect)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "written", ["hash(i)", "xxhash64(i)", "round(p, 2)", "locate('a', s, 3)", "initcap(s)"]
)
def test_functions_with_another_meaning_in_duckdb_are_rejected(written: str) -> None:
    with pytest.raises(SlicemillError, match="DuckDB has no function"):
        render(bound(written), "duckdb")


def test_a_thousand_conditions_are_rendered_without_deep_recursion() -> None:
    condition: Expr = ColumnRef("ok", t.BOOLEAN)
    for _ in range(5000):
        condition = Call("and", (condition, ColumnRef("ok", t.BOOLEAN)), t.BOOLEAN)
    assert render(condition).count("AND") == 5000


# Values of Spark 4.3 for the row below.
SPARK_VALUES = [
    ("i div 2", -3),
    ("i % 3", -1),
    ("d / 4", Decimal("-3.0625000000000")),
    ("i / 2", -3.5),
    ("(i ^ 3) & 5", 0),
    ("day - date '2026-01-30'", datetime.timedelta(days=1)),
    ("day + interval 1 month", datetime.date(2026, 2, 28)),
    ("interval 90 seconds / 4", datetime.timedelta(seconds=22.5)),
    ("cast(t - timestamp '2026-01-31' as interval hour)", 12),
    ("s like '%\\%'", True),
    ("s || NULL", None),
    ("cast(p as int)", -2),
    ("cast(d as int)", -12),
    ("cast(t as bigint)", 1769862896),
    ("bit_count(i)", 62),
    ("ceil(p)", -2),
    ("dayofweek(day)", 7),
    ("weekday(day)", 5),
    ("isnan(NULL)", False),
    ("left(s, -1)", ""),
    ("ln(p)", None),
    ("rpad(s, 5, '')", "x,y %"[:5]),
    ("pmod(7, -3)", 1),
    ("pmod(i, 3)", 2),
    ("round(2.5)", 3.0),
    ("split_part(s, ',', -1)", "y %"),
    ("substr(s, 0, 2)", "x,"),
    ("substr(s, -2)", " %"),
    ("trunc(day, 'MONTH')", datetime.date(2026, 1, 1)),
    ("unix_seconds(timestamp '1969-12-31 23:59:59.5')", -1),
    ("ok is not true", True),
    ("i not in (1, NULL)", None),
]


@pytest.fixture(scope="module")
def row() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute(
        """CREATE TABLE S AS SELECT -7 AS i, 2::BIGINT AS b, -2.5::DOUBLE AS p, 'x,y %' AS s,
        -12.25::DECIMAL(10, 2) AS d, TIMESTAMP '2026-01-31 12:34:56.789' AS t, DATE '2026-01-31' AS day,
        NULL::BOOLEAN AS ok"""
    )
    return connection


@pytest.mark.parametrize(("written", "value"), SPARK_VALUES)
def test_duckdb_sql_has_the_values_of_spark(
    written: str, value: object, row: duckdb.DuckDBPyConnection
) -> None:
    answer = row.execute(f"SELECT {render(bound(written), 'duckdb')} FROM S").fetchone()
    assert answer == (value,)

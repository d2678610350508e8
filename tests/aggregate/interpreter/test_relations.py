"""Queries over tables (M29, M40): by hand where SQL leaves a choice, against DuckDB for the rest."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import Decimal

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.udf.lookup import evaluate_relation
from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill.types import Row

TABLES = "CREATE TABLE a(k INT, x INT, s VARCHAR); CREATE TABLE b(k INT, y DOUBLE);"


def ask(text: str, tables: Mapping[str, Sequence[Row]], declarations: str = TABLES) -> list[Row]:
    """Return the rows of the last statement."""
    catalog = bind(f"{declarations} {text}").catalog
    (query,) = catalog.queries.values()
    return evaluate_relation(query.query, catalog, lambda name: tables[name])


def column(text: str, values: list[object], type_: str = "DOUBLE") -> list[object]:
    rows = ask(text, {"t": [(value,) for value in values]}, f"CREATE TABLE t(v {type_});")
    return [row[0] for row in rows]


def test_nulls_sort_first_ascending_and_last_descending() -> None:
    assert column("SELECT v FROM t ORDER BY v", [2.0, None, math.inf, 1.0]) == [None, 1.0, 2.0, math.inf]
    assert column("SELECT v FROM t ORDER BY v DESC", [2.0, None, 1.0]) == [2.0, 1.0, None]


def test_nan_is_the_greatest_value_and_one_group() -> None:
    values = [math.nan, 1.0, float("nan")]
    assert repr(column("SELECT v FROM t ORDER BY v", values)) == "[1.0, nan, nan]"
    assert repr(column("SELECT DISTINCT v FROM t", values)) == "[nan, 1.0]"
    assert column("SELECT count(*) FROM t GROUP BY v", values) == [2, 1]


def test_rows_with_equal_sort_keys_keep_their_order() -> None:
    rows = [(1, 4, "d"), (0, 3, "c"), (1, 2, "b"), (0, 1, "a")]
    assert ask("SELECT s FROM a ORDER BY k DESC", {"a": rows}) == [("d",), ("b",), ("c",), ("a",)]


def test_a_decimal_average_has_its_declared_scale() -> None:
    third = [Decimal("0.10"), Decimal("0.10"), Decimal("0.11")]
    assert column("SELECT avg(v) FROM t", third, "DECIMAL(6, 2)") == [Decimal("0.103333")]


def test_a_scalar_subquery_returns_at_most_one_row() -> None:
    query = "SELECT (SELECT y FROM b) AS v FROM a"
    assert ask(query, {"a": [(1, 1, "")], "b": []}) == [(None,)]
    with pytest.raises(SlicemillError, match="returned 2 rows; aggregate them"):
        ask(query, {"a": [(1, 1, "")], "b": [(1, 1.0), (2, 2.0)]})


def test_a_correlated_subquery_sees_the_group_but_not_its_single_rows() -> None:
    tables = {"a": [(1, 5, ""), (1, 6, ""), (2, 7, "")], "b": [(1, 0.0), (1, 1.0)]}
    counted = "SELECT k, (SELECT count(*) FROM b WHERE b.k = a.k) AS n FROM a GROUP BY k"
    assert ask(counted, tables) == [(1, 2), (2, 0)]
    with pytest.raises(SlicemillError, match=r"add a\.x to the GROUP BY"):
        ask("SELECT k, (SELECT count(*) FROM b WHERE b.k = a.x) AS n FROM a GROUP BY k", tables)


def test_a_subquery_column_hides_an_outer_column_of_the_same_name() -> None:
    tables = {"a": [(1, 1, ""), (2, 3, "")]}
    assert ask("SELECT k FROM a WHERE EXISTS (SELECT k FROM a WHERE x > 2)", tables) == [(1,), (2,)]


DECAY = """CREATE AGGREGATE decay(Next Real) : Real { TABLE state(tsum Real, cnt Int);
    INITIALIZE: { INSERT INTO state VALUES (Next, 1); INSERT INTO RETURN VALUES (Next); }
    ITERATE: { UPDATE state SET tsum = 0.9 * tsum + 1.1 * Next, cnt = cnt + 1;
               INSERT INTO RETURN SELECT tsum / cnt FROM state; } };"""


def test_a_non_blocking_aggregate_over_a_table_emits_one_row_for_each_row() -> None:
    rows = [(1, 10, ""), (2, 7, ""), (1, 20, ""), (1, 30, "")]
    out = ask(f"{DECAY} SELECT k, decay(x) FROM a GROUP BY k", {"a": rows})
    assert out == [(1, 10.0), (2, 7.0), (1, 15.5), (1, pytest.approx(20.3))]


PAIR = """CREATE AGGREGATE span(x Int) : (low Int, high Int) { TABLE t(v Int);
    INITIALIZE: ITERATE: { INSERT INTO t VALUES (x); }
    TERMINATE: { INSERT INTO RETURN SELECT min(v), max(v) FROM t; } };"""


def test_an_aggregate_can_return_several_columns() -> None:
    tables = {"a": [(1, 5, ""), (2, 9, ""), (1, 7, "")]}
    assert ask(f"{PAIR} SELECT k, span(x), count(*) FROM a GROUP BY k", tables) == [
        (1, 5, 7, 2),
        (2, 9, 9, 1),
    ]
    assert ask(f"{PAIR} SELECT span(x).high - span(x).low AS d FROM a", tables) == [(4,)]


def test_a_call_over_a_table_uses_the_base_version() -> None:
    window = """CREATE WINDOW AGGREGATE sum(x Int) : Int { TABLE inwindow(w Int);
        INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT -sum(w) FROM inwindow; } };"""
    assert ask(f"{window} SELECT sum(x) FROM a", {"a": [(1, 5, ""), (2, 9, "")]}) == [(14,)]


# -- Random queries in the common subset of ESL and DuckDB ------------------------------------------------

FROMS = {
    "a": ["a.k", "a.x"],
    "a, b": ["a.k", "a.x", "b.k", "b.y"],
    "a AS a, a AS c": ["a.k", "a.x", "c.k", "c.x"],
    "a JOIN b ON a.k = b.k": ["a.k", "a.x", "b.y"],
    "(SELECT k, max(x) AS x FROM a GROUP BY k) AS a": ["a.k", "a.x"],
    "(SELECT DISTINCT k, x FROM a WHERE x > 0) AS a, b": ["a.k", "a.x", "b.y"],
}
INNER = [
    "EXISTS (SELECT b.k FROM b WHERE b.k = a.k)",
    "EXISTS (SELECT p.x FROM a AS p WHERE p.k = a.k AND p.x > a.x)",
    "a.x >= (SELECT avg(b.y) FROM b WHERE b.k = a.k)",
    "(SELECT count(*) FROM b WHERE b.k < a.k HAVING count(*) > 1) > 0",
    "(SELECT p.x FROM a AS p WHERE p.x >= a.x ORDER BY p.x, p.k LIMIT 1) > 1",
    "EXISTS (SELECT p.k FROM a AS p WHERE p.k = a.k AND NOT EXISTS (SELECT b.k FROM b WHERE b.k = p.x))",
]
AGGREGATES = ["count(*)", "count(a.x)", "count(DISTINCT a.x)", "sum(a.x)", "min(a.x)", "max(a.x)", "avg(a.x)"]
AGGREGATES += ["median(a.x)", "var_pop(a.x)", "sum(a.x * a.k)"]


@st.composite
def conditions(draw: st.DrawFn, columns: list[str], depth: int = 2) -> str:
    kind = draw(st.sampled_from(["compare", "null", "in", "between", "inner", "and", "or", "not"]))
    one, two = draw(st.sampled_from(columns)), draw(st.sampled_from([*columns, "1", "2"]))
    if depth and kind in ("and", "or"):
        left, right = draw(conditions(columns, depth - 1)), draw(conditions(columns, depth - 1))
        return f"({left} {kind.upper()} {right})"
    if depth and kind == "not":
        return f"NOT ({draw(conditions(columns, depth - 1))})"
    if kind == "inner":
        return draw(st.sampled_from(INNER))
    if kind == "null":
        return f"{one} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if kind == "in":
        return f"{one} IN (0, {two}, 3)"
    if kind == "between":
        return f"{one} BETWEEN {two} AND 2"
    return f"{one} {draw(st.sampled_from(['=', '<>', '<', '<=']))} {two}"


@st.composite
def queries(draw: st.DrawFn) -> str:
    source = draw(st.sampled_from(sorted(FROMS)))
    columns = FROMS[source]
    text = f"FROM {source}"
    if draw(st.booleans()):
        text += f" WHERE {draw(conditions(columns))}"
    keys = draw(st.lists(st.sampled_from([*columns, "a.k + a.x"]), max_size=2, unique=True))
    calls = draw(st.lists(st.sampled_from(AGGREGATES), min_size=not keys, max_size=3, unique=True))
    if draw(st.booleans()):
        if keys:
            text += f" GROUP BY {', '.join(keys)}"
        if calls and draw(st.booleans()):
            text += f" HAVING {calls[0]} > {draw(st.integers(0, 3))}"
        values = keys + calls
        if "a.k" in keys and draw(st.booleans()):
            values.append("(SELECT count(*) FROM b WHERE b.k = a.k)")
    else:
        values = draw(st.lists(st.sampled_from([*columns, "a.k + 2 * a.x", "7"]), min_size=1, max_size=3))
    items = ", ".join(f"{value} AS v{n}" for n, value in enumerate(values))
    distinct = "DISTINCT " if draw(st.booleans()) else ""
    names = draw(st.permutations([f"v{n}" for n in range(len(values))]))
    order = ", ".join(f"{name}{draw(st.sampled_from(['', ' DESC']))}" for name in names)
    limit = f" LIMIT {draw(st.integers(0, 3))}" if draw(st.booleans()) else ""
    return f"SELECT {distinct}{items} {text} ORDER BY {order}{limit}"


small = st.none() | st.integers(-2, 4)
tables_of_a = st.lists(st.tuples(small, small, st.sampled_from("pq")), max_size=5)
tables_of_b = st.lists(st.tuples(small, st.none() | st.integers(-4, 8).map(lambda n: n / 4)), max_size=4)


@pytest.fixture(scope="module")
def database() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'; SET threads = 1")
    connection.execute(TABLES)
    return connection


def rounded(rows: Sequence[Row]) -> list[Row]:
    return [tuple(round(v, 9) if isinstance(v, float) else v for v in row) for row in rows]


@pytest.mark.slow_cpu
@settings(max_examples=300)
@given(query=queries(), a=tables_of_a, b=tables_of_b)
def test_random_queries_over_tables_give_the_rows_of_duckdb(
    database: duckdb.DuckDBPyConnection, query: str, a: list[Row], b: list[Row]
) -> None:
    database.execute("DELETE FROM a; DELETE FROM b")
    for name, rows in (("a", a), ("b", b)):
        if rows:
            database.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    expected = rounded(database.execute(query).fetchall())
    assert rounded(ask(query, {"a": a, "b": b})) == expected

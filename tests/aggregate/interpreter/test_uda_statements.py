"""INSERT, UPDATE and DELETE in the bodies of aggregates, and the types of stored values (M29)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from aggregate.interpreter.test_uda import PRICES, last_column, over_table, run, stream
from slicemill.errors import SlicemillError
from slicemill.types import Row


def body(statements: str) -> str:
    """Return an aggregate whose state starts as (1, 10), (2, 20) and whose next tuple runs the statements."""
    return f"""CREATE AGGREGATE f(x Int) : (a Int, b Int) {{ TABLE state(a Int, b Int);
      INITIALIZE: {{ INSERT INTO state VALUES (1, 10), (2, 20); }}
      ITERATE: {{ {statements} }}
      TERMINATE: {{ INSERT INTO RETURN SELECT a, b FROM state; }} }};"""


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("UPDATE state SET a = b, b = a;", [(10, 1), (20, 2)]),
        ("UPDATE state SET b = (SELECT sum(b) FROM state);", [(1, 30), (2, 30)]),
        ("UPDATE state SET a = x WHERE b > 10;", [(1, 10), (7, 20)]),
        ("DELETE FROM state WHERE a = (SELECT min(a) FROM state);", [(2, 20)]),
        ("DELETE FROM state WHERE EXISTS (SELECT s.a FROM state AS s WHERE s.a > state.a);", [(2, 20)]),
        ("DELETE FROM state WHERE a = NULL;", [(1, 10), (2, 20)]),
        ("INSERT INTO state SELECT a + x, b FROM state;", [(1, 10), (2, 20), (8, 10), (9, 20)]),
        ("INSERT INTO state (b, a) VALUES (1, x);", [(1, 10), (2, 20), (7, 1)]),
        ("INSERT INTO state VALUES (3, 30) WHERE x = 7;", [(1, 10), (2, 20), (3, 30)]),
        (
            "INSERT INTO state VALUES (3, 30) WHERE EXISTS (SELECT a FROM state WHERE a > x);",
            [(1, 10), (2, 20)],
        ),
        (
            "INSERT INTO state SELECT max(q.c), x FROM (SELECT a * x AS c FROM state) AS q;",
            [(1, 10), (2, 20), (14, 7)],
        ),
        ("DELETE FROM state; INSERT INTO state VALUES (x, x);", [(7, 7)]),
        ("DELETE FROM STATE WHERE A = 1;", [(2, 20)]),
    ],
)
def test_a_statement_sees_the_tables_before_its_own_changes(statement: str, state: list[Row]) -> None:
    assert over_table(body(statement), "f", 0, 7) == state


def test_stored_values_take_the_type_of_their_column() -> None:
    text = """CREATE AGGREGATE f(x Real) : (r Real, i Int, d Decimal(6, 2), s Char(2)) {
      TABLE t(r Real, i Int, d Decimal(6, 2), s Char(2));
      INITIALIZE: ITERATE: { INSERT INTO t VALUES (1, 2.9, 0.125, 'abc');
        INSERT INTO t SELECT i, r, i, s FROM t;
        UPDATE t SET r = i WHERE i = 1; INSERT INTO RETURN SELECT r, i, d, s FROM t;
        INSERT INTO RETURN VALUES (x, x, x, 'x'); } };"""
    assert repr(over_table(text, "f", 3)) == repr(
        [
            (1.0, 2, Decimal("0.13"), "ab"),
            (1.0, 1, Decimal("2.00"), "ab"),
            (3.0, 3, Decimal("3.00"), "x"),
        ]
    )


def test_untyped_arguments_take_the_type_of_their_values() -> None:
    text = """CREATE AGGREGATE pair(a, b) : (b Varchar, a Int) {
      INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (b, a + 1); } };"""
    assert over_table(text, "pair", (1, "x")) == [("x", 2)]


def test_a_timestamp_is_stored_unchanged_and_other_values_are_rejected() -> None:
    text = """CREATE AGGREGATE moment(t Timestamp, s Char(2)) : (t Timestamp, s Char(2)) {
      INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (t, s); } };"""
    assert over_table(text, "moment", (1_500_000, "abc")) == [(1_500_000, "ab")]
    with pytest.raises(SlicemillError, match=r"'noon' is not a TIMESTAMP"):
        over_table(text, "moment", ("noon", ""))


def test_terminate_sees_the_last_arguments_and_does_not_change_the_state() -> None:
    text = """CREATE AGGREGATE f(x Int) : Int { TABLE t(a Int);
      INITIALIZE: ITERATE: { INSERT INTO t VALUES (x); }
      TERMINATE: { INSERT INTO t VALUES (100 * x); INSERT INTO RETURN SELECT sum(a) FROM t; } };"""
    query = "SELECT f(CAST(price AS INT)) OVER (RANGE UNBOUNDED PRECEDING) FROM Price"
    assert last_column(run(f"{PRICES} {text} {query}", stream(1.0, 2.0, 3.0))) == [101, 203, 306]

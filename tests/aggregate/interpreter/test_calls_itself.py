"""Recursive aggregates: each call has its own tables, and endless recursion ends with a message (M29)."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.aggregates.udf.lookup import MOST_CALLS, evaluate_relation
from slicemill.binder import bind
from slicemill.functions.values import ExpressionError
from slicemill.sql.errors import EslError
from slicemill.types import Row

REACH = """
CREATE TABLE edge(a int, b int); CREATE TABLE root(r int);
CREATE AGGREGATE reach(n int) : int {
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (n);
    INSERT INTO RETURN SELECT reach(b) FROM edge WHERE a = n; } }
SELECT reach(r) AS n FROM root;
"""
DOWN = """
CREATE TABLE edge(a int, b int); CREATE TABLE root(r int);
CREATE AGGREGATE down(n int) : int {
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (n);
    INSERT INTO RETURN SELECT down(n - a) FROM edge WHERE n > 1; } }
SELECT down(r) AS n FROM root;
"""
# The call is nested as deeply in expressions as in hand-written queries.
DEPTH = """
CREATE TABLE edge(a int, b int); CREATE TABLE root(r int);
CREATE AGGREGATE depth(n int) : int {
  TABLE deepest(d int);
  INITIALIZE: ITERATE: { INSERT INTO deepest VALUES (0);
    UPDATE deepest SET d = CASE WHEN n > 1
      THEN 1 + COALESCE(abs((SELECT depth(n - a) FROM edge WHERE EXISTS (SELECT b FROM edge))), 0)
      ELSE 1 END; }
  TERMINATE: { INSERT INTO RETURN SELECT d FROM deepest; } }
SELECT depth(r) AS d FROM root;
"""


def asked(esl: str, edges: list[Row], root: int) -> list[Row]:
    catalog = bind(esl).catalog
    rows: dict[str, list[Row]] = {"edge": edges, "root": [(root,)]}
    query = catalog.queries["query_1"].query
    return evaluate_relation(query, catalog, rows.__getitem__)  # type: ignore[arg-type]


def test_recursive_calls_nest_up_to_the_documented_depth() -> None:
    assert asked(DOWN, [(1, 0)], MOST_CALLS) == [(left,) for left in range(MOST_CALLS, 0, -1)]
    with pytest.raises(ExpressionError, match="down are nested more than 500 deep, perhaps in an"):
        asked(DOWN, [(1, 0)], MOST_CALLS + 1)


def test_recursive_calls_inside_expressions_nest_as_deeply_also_in_a_thread() -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asked, DEPTH, [(1, 0)], MOST_CALLS).result() == [(MOST_CALLS,)]


def test_endless_recursion_ends_with_a_message_and_has_no_side_effects() -> None:
    for _ in range(2):
        with pytest.raises(ExpressionError, match="which rows have been processed, or use WHILE"):
            asked(REACH, [(1, 2), (2, 1)], 1)
    assert asked(REACH, [(1, 2)], 1) == [(1,), (2,)]
    assert sys.getrecursionlimit() >= 1000


def test_mutual_recursion_of_two_aggregates_counts_as_one_depth() -> None:
    ping = """CREATE AGGREGATE ping(n int) : int { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (n); } }
        CREATE TABLE edge(a int, b int); CREATE TABLE root(r int);
        CREATE AGGREGATE pong(n int) : int { INITIALIZE: ITERATE: {
          INSERT INTO RETURN SELECT ping(b) FROM edge WHERE a = n; } }
        DROP AGGREGATE ping;
        CREATE AGGREGATE ping(n int) : int { INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (n);
          INSERT INTO RETURN SELECT pong(b) FROM edge WHERE a = n; } }
        SELECT ping(r) AS n FROM root;"""
    assert asked(ping, [(1, 2), (2, 3), (3, 4)], 1) == [(1,), (3,)]
    with pytest.raises(ExpressionError, match="nested more than 500 deep"):
        asked(ping, [(1, 1)], 1)


def test_a_recursive_aggregate_is_interpreted_with_a_reason() -> None:
    catalog = bind(REACH + "CREATE STREAM S(x int); CREATE QUERY q AS SELECT reach(x) FROM S;").catalog
    (call,) = catalog.queries["q"].query.aggregates
    how = prepare(call, catalog).how
    assert (how.form, how.why) == ("interpreter", "reach is a user-defined aggregate")


def test_a_call_of_the_own_name_inside_a_redefined_built_in_means_the_built_in() -> None:
    catalog = bind("""CREATE TABLE t(x real); CREATE AGGREGATE max(x real) : real { TABLE all_(v real);
        INITIALIZE: ITERATE: { INSERT INTO all_ VALUES (x); }
        TERMINATE: { INSERT INTO RETURN SELECT 10 * max(v) FROM all_; } }
        SELECT max(x) AS m FROM t;""").catalog
    assert evaluate_relation(catalog.queries["query_1"].query, catalog, lambda _: [(1.0,), (3.0,)]) == [
        (30.0,)
    ]


def test_a_window_version_cannot_call_itself() -> None:
    with pytest.raises(EslError, match="lone has only a window version"):
        bind("""CREATE WINDOW AGGREGATE lone(x real) : real { TABLE inwindow(w real);
            INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT lone(w) FROM inwindow; } EXPIRE: { } }""")

"""WHILE loops against the same loop in Python, and the limit of endless loops."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.catalog import QueryDefinition
from slicemill.catalog.queries import SelectQuery
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import Clock, inline_pool
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import fed_mill, feed_rows, finish

COLLATZ = """CREATE STREAM s (at timestamp, x bigint) ORDER BY at;
CREATE AGGREGATE steps(x bigint) : int {
  TABLE st(v bigint, n int);
  INITIALIZE: ITERATE: {
    DELETE FROM st;
    INSERT INTO st VALUES (x, 0);
    WHILE EXISTS (SELECT v FROM st WHERE v <> 1) {
      UPDATE st SET v = CASE WHEN v % 2 = 0 THEN v DIV 2 ELSE 3 * v + 1 END, n = n + 1;
    }
    INSERT INTO RETURN SELECT n FROM st; } };
CREATE QUERY q AS SELECT steps(x) AS n FROM s;"""


def steps(value: int) -> int:
    count = 0
    while value != 1:
        value, count = (value // 2 if value % 2 == 0 else 3 * value + 1), count + 1
    return count


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_while_loop_gives_the_result_of_the_python_loop(values: list[int]) -> None:
    bound = bind(COLLATZ).catalog
    engine = Engine(translate(optimize(build_graph(bound)), bound, {}))
    for index, value in enumerate(values):
        engine.feed("s", [Arrival(index, (index, value), index)])
        engine.run_until_idle()
    engine.run()
    assert [row.row[0] for row in engine.results("q")] == [steps(value) for value in values]


def test_a_while_loop_is_reported_as_machine_code() -> None:
    bound = bind(COLLATZ)
    query = bound.statements[-1][0]
    assert isinstance(query, QueryDefinition) and isinstance(query.query, SelectQuery)
    how = prepare(query.query.aggregates[0], bound.catalog).how
    assert (how.form, how.why) == ("machine code", "")


def test_an_endless_loop_stops_only_its_own_query(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        mill.execute(COLLATZ + "CREATE QUERY plain AS SELECT x FROM s;")
        mill.open()
        feed_rows(mill, "s", [(1, 7), (2, 0)])
        finish(mill)
        assert "a WHILE loop has not ended after 100,000 rounds" in (mill.queries["q"].error or "")
        assert mill.queries["plain"].log.rows == 2

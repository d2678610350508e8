"""Functions in Python on the engine: in conditions, windows and aggregates, and what one bad row does."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import Clock, inline_pool
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
ESL = """
CREATE STREAM s (at timestamp, k int, v int) ORDER BY at;
CREATE FUNCTION root(x int) RETURNS int LANGUAGE PYTHON AS 'functions_on_engine:root';
CREATE FUNCTION near(x int, y int) RETURNS boolean AS abs(root(x) - root(y)) <= 1;
CREATE AGGREGATE roots(x int) : int {
  TABLE st(t int);
  INITIALIZE: { INSERT INTO st VALUES (root(x)); INSERT INTO RETURN SELECT t FROM st; }
  ITERATE: { UPDATE st SET t = t + root(x); INSERT INTO RETURN SELECT t FROM st; } };
CREATE QUERY chosen AS SELECT k, root(v) AS r FROM s WHERE near(v, 20);
CREATE QUERY windows AS SELECT k, sum(root(v)) OVER (PARTITION BY root(k) ROWS 2 PRECEDING) AS r FROM s;
CREATE QUERY total AS SELECT roots(v) AS t FROM s;
"""
ROWS = [(second * SECOND, second % 5, second * 7 % 40) for second in range(1, 40)]


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "functions_on_engine.py").write_text(
        "import pyarrow.compute as pc\n"
        "def root(x):\n"
        "    if pc.any(pc.equal(x, 13)).as_py():\n"
        "        raise ValueError('13 is bad luck')\n"
        "    return pc.cast(pc.floor(pc.sqrt(x)), 'int32')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_both_engines_agree(tmp_path: Path) -> None:
    rows = [row for row in ROWS if row[2] != 13]
    bound = bind(ESL).catalog
    engine = Engine(translate(optimize(build_graph(bound)), bound, {}))
    for row in rows:
        engine.feed("s", [Arrival(row[0], row, row[0])])
        engine.run_until_idle()
    engine.run()
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        mill.execute(ESL)
        mill.open()
        for part in (rows[:7], rows[7:8], rows[8:]):
            feed_rows(mill, "s", part)
            mill.dispatcher.run_all()
        finish(mill)
        for name in ("chosen", "windows", "total"):
            found = list(mill.queries[name].timed_rows())
            assert found and sorted(found) == sorted(Timed(*row[:2]) for row in engine.results(name))


def test_a_row_that_fails_stops_the_queries_that_ask_for_it(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        mill.execute(ESL + "CREATE QUERY lucky AS SELECT CASE WHEN v <> 13 THEN root(v) END AS r FROM s;")
        mill.open()
        feed_rows(mill, "s", ROWS)
        finish(mill)
        assert mill.queries["lucky"].error is None and mill.queries["lucky"].log.rows == len(ROWS)
        assert "functions_on_engine:root failed: ValueError: 13 is bad luck" in (
            mill.queries["chosen"].error or ""
        )

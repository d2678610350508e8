"""The choice of a window strategy."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.operators.protocol import SharedOperator
from slicemill.operators.registry import kind_of
from slicemill.operators.step import StepContext, step_of
from slicemill.operators.window.step import SharedWindowStep, WindowStep
from slicemill.operators.window.strategies import window_strategy
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

SCRIPT = """CREATE STREAM s (k bigint, v bigint, ts timestamp) ORDER BY ts;
CREATE AGGREGATE both(x bigint) : bigint {
  TABLE t(n bigint);
  INITIALIZE: ITERATE: { INSERT INTO RETURN VALUES (x); }
};
CREATE QUERY q AS """
STEP = "slicemill.operators.window.strategies:window_step"


@pytest.mark.parametrize(
    ("query", "strategy"),
    [
        ("SELECT k, sum(v) AS x FROM s [RANGE 10 SECONDS SLIDE 2 SECONDS] GROUP BY k", "PaneWindows"),
        ("SELECT k, sum(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS x FROM s", "SortedWindows"),
        ("SELECT k, sum(v) OVER (PARTITION BY k ROWS UNBOUNDED PRECEDING) AS x FROM s", "SortedWindows"),
        ("SELECT k, both(v) OVER (PARTITION BY k ROWS 9 PRECEDING) AS x FROM s", "RoutineWindows"),
        ("SELECT k, sum(v) AS x FROM s [ROWS 9] GROUP BY k", "CountedWithOver"),
        ("SELECT k, sum(v) AS x FROM s [ROWS 9 SLIDE 3] GROUP BY k", "CountedWindows"),
        (
            "SELECT a.k, count(*) AS x FROM s [RANGE 9 SECONDS] AS a, s [RANGE 5 SECONDS] AS b "
            "WHERE a.k = b.k GROUP BY a.k",
            "TimedWindows",
        ),
        ("SELECT k, sum(v) AS x FROM s [SESSION 9 SECONDS] GROUP BY k", "SessionWindows"),
        (
            "SELECT k, sum(v) AS x FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k ORDER BY x LIMIT 2",
            "TopWindows",
        ),
    ],
)
def test_each_kind_of_window_has_its_strategy(query: str, strategy: str) -> None:
    catalog = bind(f"{SCRIPT}{query};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    found = set()
    for node in graph:
        if kind_of(node.operator).step == STEP:
            context = StepContext(node=node, graph=graph, catalog=catalog, tables={}, state=None)
            found.add(type(window_strategy(node.operator, context)).__name__)
            wanted = SharedWindowStep if isinstance(node.operator, SharedOperator) else WindowStep
            assert isinstance(step_of(context), wanted)
    assert strategy in found

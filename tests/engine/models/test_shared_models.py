"""Models over sliding windows of one stream and key share what is stored, and nobody sees it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.operators.window.spec import SharedWindows
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from support.corpus import Event, TimedRow
from support.tasks import run_tasks

SECOND = 1_000_000
DECLARED = """CREATE STREAM s(k int, x real, y real, ts timestamp) ORDER BY ts;
CREATE MODEL spread(x REAL) AS let m = mean(x) in sum((x - m)^2)/n;
CREATE MODEL line(x REAL, y REAL) AS slope(x, y);
CREATE MODEL far(x REAL) AS max(abs(x)) + median(x);
"""
QUERIES = {
    "a": "SELECT k, spread(x) AS v FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "b": "SELECT k, line(x, y) AS v, spread(x) AS w FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "c": "SELECT k, far(y) AS v FROM s [RANGE 6 SECONDS SLIDE 3 SECONDS] WHERE x > 0 GROUP BY k",
}
NUMBERS = st.sampled_from([None, -2.0, 0.0, 0.5, 3.0, 1e6])
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), NUMBERS, NUMBERS), max_size=14)


Rows = list[tuple[int, int, float | None, float | None]]


def catalog_of(names: list[str]) -> Catalog:
    return bind(DECLARED + "".join(f"CREATE QUERY {name} AS {QUERIES[name]};" for name in names)).catalog


def run(names: list[str], rows: Rows, seed: int) -> dict[str, list[TimedRow]]:
    events, now = [], 0
    for gap, *values in rows:
        now += gap * SECOND
        events.append(Event(now, "s", now, (*values, now)))
    return run_tasks(catalog_of(names), events, {}, seed, 2)


@pytest.mark.slow_cpu
@settings(max_examples=20)
@given(ROWS, st.integers(0, 5))
def test_together_every_query_gets_the_rows_it_gets_alone(rows: Rows, seed: int) -> None:
    together = run(list(QUERIES), rows, seed)
    for name in QUERIES:
        assert repr(together[name]) == repr(run([name], rows, seed)[name])


def test_they_are_members_of_one_node() -> None:
    catalog = catalog_of(list(QUERIES))
    graph = share(optimize(build_graph(catalog)), catalog)
    (shared,) = [node.operator for node in graph if isinstance(node.operator, SharedWindows)]
    assert len(shared.members) == len(QUERIES)

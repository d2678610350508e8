"""Models over sliding windows of one stream and key share what is stored, and nobody sees it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.test_program import run
from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.operators import SharedWindows
from slicemill.plan.optimize import optimize, share
from support.corpus import Event, Runnable, case_paths, prepare, read_case

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


def runnable(names: list[str], rows: list[tuple[int, int, float | None, float | None]]) -> Runnable:
    catalog = bind(DECLARED + "".join(f"CREATE QUERY {name} AS {QUERIES[name]};" for name in names)).catalog
    events, now = [], 0
    for gap, *values in rows:
        now += gap * SECOND
        events.append(Event(now, "s", now, (*values, now)))
    frame = prepare(read_case(case_paths()[0]))
    return replace(frame, catalog=catalog, events=tuple(events), tables={}, expected={})


@settings(max_examples=20)
@given(ROWS, st.integers(0, 5))
def test_together_every_query_gets_the_rows_it_gets_alone(
    rows: list[tuple[int, int, float | None, float | None]], seed: int
) -> None:
    together = run(runnable(list(QUERIES), rows), seed, 2)
    for name in QUERIES:
        assert sorted(together[name], key=repr) == sorted(
            run(runnable([name], rows), seed, 2)[name], key=repr
        )


def test_they_are_members_of_one_node() -> None:
    catalog = runnable(list(QUERIES), []).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (shared,) = [node.operator for node in graph if isinstance(node.operator, SharedWindows)]
    assert len(shared.members) == len(QUERIES)

"""Sessions of several queries that share rows, on both engines, against sessions in DuckDB's SQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns import keys
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.session import state
from slicemill.operators.session.spec import SharedSessions
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.stored import stored

SECOND = 1_000_000

# The window, a condition, and in SQL the time until which a tuple keeps its session open.
QUERIES = {
    "short": ("SESSION 2 SECONDS", "", "ts + 2000000"),
    "long": ("SESSION 5 SECONDS", "", "ts + 5000000"),
    "some": ("SESSION 3 SECONDS", "v > 0", "ts + 3000000"),
    "closed": ("SESSION 4 SECONDS CLOSE WHEN last", "", "ts + 4000000"),
    "until": ("SESSION UNTIL till", "", "coalesce(greatest(till, ts), ts)"),
}
SCRIPT = "CREATE STREAM S (k varchar, v int, last boolean, till timestamp) ORDER BY current_time;" + "".join(
    f"""CREATE QUERY {name} AS SELECT k, count(*) AS n, sum(v) AS s, median(v) AS m,
    window_start() AS b, window_end() AS e FROM S [{window}]
    {f"WHERE {where}" if where else ""} GROUP BY k;"""
    for name, (window, where, _) in QUERIES.items()
)
CATALOG = bind(SCRIPT).catalog


def by_duckdb(tuples: Sequence[Timed], name: str) -> list[tuple[Any, ...]]:
    window, where, end = QUERIES[name]
    closes = "last IS TRUE" if "CLOSE" in window else "FALSE"
    with duckdb.connect() as db:
        db.execute("CREATE TABLE s (o INTEGER, ts BIGINT, k VARCHAR, v INTEGER, last BOOLEAN, till BIGINT)")
        if tuples:
            places = ", ".join(["(?, ?, ?, ?, ?, ?)"] * len(tuples))
            values = [value for o, t in enumerate(tuples) for value in (o, t.ts, *t.row)]
            db.execute(f"INSERT INTO s VALUES {places}", values)
        return db.sql(f"""
            WITH taken AS (SELECT *, {end} AS till_then, {closes} AS closes FROM s WHERE {where or "TRUE"}),
            before AS (SELECT *, max(till_then) OVER earlier AS held, lag(closes) OVER own AS over
                FROM taken WINDOW own AS (PARTITION BY k ORDER BY o),
                earlier AS (PARTITION BY k ORDER BY o ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
            numbered AS (SELECT *, count(*) FILTER (WHERE held IS NULL OR ts > held OR over)
                OVER (PARTITION BY k ORDER BY o) AS session FROM before)
            SELECT CASE WHEN bool_or(closes) THEN max(ts) ELSE max(till_then) END AS e, k,
                count(*), sum(v), median(v), min(ts), e
            FROM numbered GROUP BY k, session ORDER BY e, min(o)""").fetchall()


def by_reference(tuples: Sequence[Timed]) -> dict[str, list[tuple[Any, ...]]]:
    engine = Engine(translate(build_graph(CATALOG), CATALOG, {}))
    engine.feed("S", [Arrival(t.ts, t.row) for t in tuples])
    engine.run()
    return {name: [(t.ts, *t.row) for t in engine.results(name)] for name in QUERIES}


def by_tasks(
    tuples: Sequence[Timed], borders: Sequence[int], restarts: Collection[int]
) -> dict[str, list[tuple[Any, ...]]]:
    graph = share(optimize(build_graph(CATALOG)), CATALOG)
    shared = [node.operator for node in graph if isinstance(node.operator, SharedSessions)]
    assert len(shared) == 1 and len(shared[0].members) == len(QUERIES), "they keep their rows once"
    (task,) = split_into_tasks(graph)
    plan = TaskPlan(task=task, graph=graph, catalog=CATALOG, tables={})
    program = TaskProgram(plan)
    schema = graph[graph.streams["S"]].schema
    out: dict[str, list[tuple[Any, ...]]] = {name: [] for name in QUERIES}
    places = sorted({0, *(border for border in borders if border < len(tuples)), len(tuples)})
    for first, last in zip(places, [*places[1:], len(tuples)], strict=True):
        if first in restarts:
            program = TaskProgram(plan, stored(program.states))
        part = tuples[first:last]
        complete = tuples[last].ts if last < len(tuples) else END
        outcome = program.run(
            {"S": to_table(part, schema, [0] * len(part), [*range(first, last)])}, {"S": complete}
        )
        assert not outcome.errors
        for name in QUERIES:
            rows = timed_rows(outcome.tables[name], CATALOG.queries[name].schema)
            out[name] += [(t.ts, *t.row) for t in rows]
    return out


arrivals = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["a", "b", None]),
        st.none() | st.integers(-2, 3),
        st.sampled_from([True, False, False, None]),
        st.none() | st.integers(0, 12),
    ),
    max_size=24,
)


@pytest.mark.slow_cpu
@settings(max_examples=25)
@given(
    arrivals,
    st.lists(st.integers(0, 24), max_size=6),
    st.frozensets(st.integers(0, 24), max_size=6),
    st.sampled_from([0, 8]),
)
@example([(0, "a", 1, True, None), (0, "a", 2, False, 9), (3, "a", 1, None, 1)], [1, 2], frozenset(), 0)
@example([(0, "a", 1, True, None), (0, "a", 2, False, 9), (3, "a", 1, None, 1)], [1, 2], frozenset({2}), 8)
def test_both_engines_give_the_sessions_of_duckdb_for_any_division_into_runs(
    steps: list[tuple[int, str | None, int | None, bool | None, int | None]],
    borders: list[int],
    restarts: frozenset[int],
    dense: int,
) -> None:
    tuples, now = [], 0
    for step, key, value, last, till in steps:
        now += step * SECOND
        tuples.append(Timed(now, (key, value, last, None if till is None else till * 3 * SECOND)))
    reference = by_reference(tuples)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "_DENSE", dense)
        patch.setattr(keys, "_MANY_UNUSED", dense)
        tasks = by_tasks(tuples, borders, restarts)
    for name in QUERIES:
        expected = by_duckdb(tuples, name)
        assert tasks[name] == expected, name
        assert reference[name] == expected, name

"""Temporal queries against DuckDB: tuples of windows in a table, equal values by window functions."""

from __future__ import annotations

from random import Random

import duckdb
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Row, Timed

STREAM = "CREATE STREAM S (k int, v varchar, n int) ORDER BY current_time;\n"
RUNS = """
WITH windows AS (SELECT unnest(range({first}, {last} + 1, {slide})) AS e),
inside AS (
  SELECT e, k, v, n, number, t, lead(t, 1, e) OVER (PARTITION BY e, k ORDER BY number) AS until
  FROM windows JOIN S ON t >= e - {extent} AND t < e),
held AS (SELECT * FROM inside WHERE until > t AND n > 1),
marked AS (
  SELECT *, CASE WHEN v IS NOT DISTINCT FROM lag(v) OVER w AND t = lag(until) OVER w
            AND row_number() OVER w > 1 THEN 0 ELSE 1 END AS begun
  FROM held WINDOW w AS (PARTITION BY e, k ORDER BY number)),
numbered AS (SELECT *, sum(begun) OVER (PARTITION BY e, k ORDER BY number) AS run FROM marked)
SELECT e, k, any_value(v), min(t), max(until) FROM numbered GROUP BY e, k, run
HAVING max(until) - min(t) >= 4
"""


def stream(random: Random, count: int) -> list[Timed]:
    ts, out = 0, []
    for _ in range(count):
        ts += random.choice([0, 1, 2, 3, 25])
        row: Row = (
            random.choice([1, 2, None]),
            random.choice(["a", "a", "b", None]),
            random.choice([1, 2, 3]),
        )
        out.append(Timed(ts, row))
    return out


def by_duckdb(rows: list[Timed], extent: int, slide: int) -> list[tuple[object, ...]]:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE S (number INT, t BIGINT, k INT, v VARCHAR, n INT)")
        for number, (ts, row) in enumerate(rows):
            connection.execute("INSERT INTO S VALUES (?, ?, ?, ?, ?)", [number, ts, *row])
        query = RUNS.format(first=slide, last=rows[-1].ts + extent + slide, slide=slide, extent=extent)
        return connection.execute(query).fetchall()


def by_slicemill(rows: list[Timed], extent: int, slide: int) -> list[tuple[object, ...]]:
    catalog = bind(
        f"{STREAM}CREATE QUERY q AS SELECT R.k, R.v, VALID(R) FROM S(v) AS R RANGE {extent} MICROSECONDS "
        f"SLIDES {slide} MICROSECONDS PARTITION BY k "
        "WHERE n > 1 AND CAST(VALID(R) AS INTERVAL MICROSECOND) >= 4"
    ).catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    schema = graph[graph.streams["S"]].schema
    program, out = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={})), []
    for start in range(0, len(rows), 15):
        part = rows[start : start + 15]
        complete = END if start + 15 >= len(rows) else part[-1].ts
        outcome = program.run({"S": to_table(part, schema, [0] * len(part))}, {"S": complete})
        out += timed_rows(outcome.tables["q"], catalog.queries["q"].schema)
    return [(ts, k, v, *period) for ts, (k, v, period) in out]  # type: ignore[misc]


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from([5, 12, 30]), st.sampled_from([3, 10]))
def test_coalesced_periods_equal_those_of_window_functions(seed: int, extent: int, slide: int) -> None:
    rows = stream(Random(seed), 40)
    found, expected = by_slicemill(rows, extent, slide), by_duckdb(rows, extent, slide)
    assert sorted(map(repr, found)) == sorted(map(repr, expected))

"""Random streams through the reference engine and through the tasks of the runtime, against DuckDB."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed as TimedTuple
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.oracle import Oracle, Timed

SCRIPT = """
CREATE STREAM A (k int, v int, t varchar) ORDER BY current_time;
CREATE STREAM B (k int, v int) ORDER BY current_time;
CREATE STREAM C (k int, w double) ORDER BY current_time;
CREATE TABLE T (k int, name varchar);
CREATE STREAM D AS SELECT k, v * 2 AS v FROM B WHERE v > 2;

CREATE QUERY filtered AS SELECT k, v + 1 AS v, upper(t) AS t FROM A WHERE v BETWEEN 2 AND 7 OR t LIKE 'a%';
CREATE QUERY cases AS SELECT CASE WHEN v > 5 THEN 'high' WHEN v > 2 THEN t ELSE NULL END AS c FROM A;
CREATE QUERY merged AS SELECT k, v FROM A UNION ALL SELECT k, v FROM D UNION ALL SELECT k, k FROM C;
CREATE QUERY looked_up AS SELECT A.v, T.name FROM A JOIN T ON A.k = T.k;
CREATE QUERY joined AS SELECT A.k, A.v, B.v AS b FROM A [RANGE 7 SECONDS], B [RANGE 3 SECONDS]
  WHERE A.k = B.k AND A.v <> B.v;
CREATE QUERY threesome AS SELECT A.v, D.v AS d, C.w FROM A, D, C
  WHERE A.k = D.k AND D.k = C.k WINDOW 5 SECONDS;
CREATE QUERY itself AS SELECT X.v, Y.v AS y FROM A [RANGE 2 SECONDS] AS X, A [RANGE 4 SECONDS] AS Y
  WHERE X.k < Y.k;
CREATE QUERY counted AS SELECT k, count(*) AS n, sum(v) AS s, min(v) AS low, window_end() AS e
  FROM A [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE v > 1 GROUP BY k HAVING count(*) > 1;
CREATE QUERY hopping AS SELECT avg(w) AS mean, count(DISTINCT k) AS keys
  FROM C [RANGE 4 SECONDS SLIDE 3 SECONDS];
CREATE QUERY left_joined AS SELECT A.k, A.v, B.v AS b FROM A [RANGE 3 SECONDS] LEFT JOIN B [RANGE 2 SECONDS]
  ON A.k = B.k AND A.v > 1 AND B.v < 8 WHERE A.v < 9 AND (B.v IS NULL OR B.v > A.v);
CREATE QUERY right_joined AS SELECT A.t, B.k, B.v FROM A [RANGE 3 SECONDS] RIGHT JOIN B [RANGE 5 SECONDS]
  ON A.k = B.k AND A.v <> B.v;
CREATE QUERY full_joined AS SELECT *, A.k AS x FROM A [RANGE 4 SECONDS]
  FULL JOIN B [RANGE 2 SECONDS] USING (k);
CREATE QUERY near_or_alone AS SELECT A.v, B.v AS b FROM A [RANGE 2 SECONDS] FULL JOIN B [RANGE 4 SECONDS]
  ON A.v BETWEEN B.v - 1 AND B.v + 1;
CREATE QUERY matched AS SELECT * FROM A [RANGE 4 SECONDS] SEMI JOIN B [RANGE 1 SECOND]
  ON A.k = B.k AND B.v > 3;
CREATE QUERY without AS SELECT k, t FROM A [RANGE 2 SECONDS] ANTI JOIN D [RANGE 6 SECONDS]
  ON A.k = D.k WHERE A.v > 1;
CREATE QUERY existing AS SELECT k, v FROM A
  WHERE v > 2 AND EXISTS (SELECT 1 FROM B [RANGE 5 SECONDS] WHERE k = A.k AND B.v < A.v);
CREATE QUERY not_among AS SELECT k, v FROM A [RANGE 2 SECONDS]
  WHERE k NOT IN (SELECT k FROM C [RANGE 3 SECONDS] WHERE w > 0);
CREATE QUERY unmatched_named AS SELECT A.v, T.name, B.v AS b FROM A [RANGE 2 SECONDS]
  LEFT JOIN B [RANGE 2 SECONDS] ON A.k = B.k JOIN T ON A.k = T.k;
CREATE QUERY joined_count AS SELECT A.k, count(*) AS n
  FROM A [RANGE 5 SECONDS SLIDE 2 SECONDS], B [RANGE 3 SECONDS] WHERE A.k = B.k GROUP BY A.k;
"""
CATALOG = bind(SCRIPT).catalog
GRAPH = build_graph(CATALOG)
TABLES = {"T": [(1, "one"), (2, "two"), (2, "zwei"), (None, "none")]}
SECOND = 1_000_000

keys = st.one_of(st.integers(0, 3), st.none())
values = st.one_of(st.integers(0, 9), st.none())
texts = st.one_of(st.sampled_from(["a", "ab", "b", ""]), st.none())
weights = st.one_of(st.integers(-8, 8).map(lambda n: n / 4), st.none())


@st.composite
def inputs(draw: st.DrawFn) -> dict[str, list[Timed]]:
    """Draw three streams with unique timestamps, because equal timestamps would have no order."""
    moments = sorted(draw(st.sets(st.integers(0, 40), max_size=25)))
    streams: dict[str, list[Timed]] = {"A": [], "B": [], "C": []}
    for moment in moments:
        name = draw(st.sampled_from("ABC"))
        row = {
            "A": st.tuples(keys, values, texts),
            "B": st.tuples(keys, values),
            "C": st.tuples(keys, weights),
        }[name]
        streams[name].append((moment * SECOND // 2, draw(row)))
    return streams


def by_reference(streams: dict[str, list[Timed]], rewrite: bool) -> dict[str, list[Timed]]:
    engine = Engine(translate(optimize(GRAPH) if rewrite else GRAPH, CATALOG, TABLES))
    for name, tuples in streams.items():
        engine.feed(name, [Arrival(ts, row) for ts, row in tuples])
    engine.run()
    return {query: [(t.ts, t.row) for t in engine.results(query)] for query in CATALOG.queries}


def by_tasks(streams: dict[str, list[Timed]], border: int) -> dict[str, list[Timed]]:
    """Run every task twice: with the tuples before a moment, and with those after it."""
    graph = share(optimize(GRAPH), CATALOG)
    schemas = {name: graph[node_id].schema for name, node_id in graph.streams.items()}
    schemas |= {node.id: node.schema for node in graph}
    logs: dict[str, list[list[Timed]]] = {
        name: [[t for t in tuples if t[0] < border], [t for t in tuples if t[0] >= border]]
        for name, tuples in streams.items()
    }
    for task in split_into_tasks(graph):
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=CATALOG, tables=TABLES))
        for _, log in task.outputs:
            logs[log] = []
        for number, complete in enumerate((border, END)):
            given = {}
            for log in task.inputs:
                new = logs[log][number]
                given[log] = to_table([TimedTuple(*t) for t in new], schemas[log], [0] * len(new))
            outcome = program.run(given, dict.fromkeys(task.inputs, complete))
            assert not outcome.errors
            for _, log in task.outputs:
                logs[log].append([tuple(t) for t in timed_rows(outcome.tables[log], schemas[log])])
    return {query: [t for part in logs[query] for t in part] for query in CATALOG.queries}


def by_time(rows: list[Timed]) -> list[str]:
    return sorted(repr((ts, row)) for ts, row in rows)


@pytest.mark.slow_cpu
@settings(max_examples=60)
@given(inputs(), st.integers(0, 20), st.booleans())
def test_both_engines_give_the_rows_of_duckdb(
    streams: dict[str, list[Timed]], border: int, rewrite: bool
) -> None:
    oracle = Oracle(CATALOG, streams, TABLES)
    reference = by_reference(streams, rewrite)
    tasks = by_tasks(streams, border * SECOND)
    for query in CATALOG.queries:
        expected = by_time(oracle.rows(query))
        assert by_time(reference[query]) == expected, query
        assert by_time(tasks[query]) == expected, query

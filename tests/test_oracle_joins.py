"""Joins in the syntax of other systems, against DuckDB over the finished input.

Each query stands beside the SQL with its meaning; `_ts` is the time of a result. Rows without a partner have
the end of their window as their time.
"""

from __future__ import annotations

from itertools import pairwise

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate

SECOND = 1_000_000
DECLARED = """
CREATE STREAM a (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, w int, ts timestamp) ORDER BY ts;
CREATE STREAM c (k int, x int, ts timestamp) ORDER BY ts;
"""
_BOTH = "greatest(a.ts, b.ts) AS _ts"


def _near(first: str, second: str, seconds: int) -> str:
    """Return the condition that two streams are in each other's windows of so many seconds."""
    return f"abs({first}.ts - {second}.ts) < {seconds * SECOND}"


_LEFTS = f"""FROM a LEFT JOIN b ON a.k = b.k AND {_near("a", "b", 4)} LEFT JOIN c ON a.k = c.k
AND {_near("a", "c", 4)} AND (b.ts IS NULL OR {_near("b", "c", 4)})"""
# A row is emitted with its latest part; without a partner, when its first window has passed.
_KNOWN = "CASE WHEN b.ts IS NULL THEN a.ts + 4000000 ELSE greatest(a.ts, b.ts) END"
_ALONE = "CASE WHEN b.ts IS NULL THEN a.ts + 4000001 ELSE least(a.ts, b.ts) + 4000000 END"
_WHEN_KNOWN = f"CASE WHEN c.ts IS NULL THEN {_ALONE} ELSE greatest({_KNOWN}, c.ts) END"
_IN_WINDOW = f"a.ts // {5 * SECOND} = b.ts // {5 * SECOND}"

# By name: ESL, and SQL over tables in which times are microseconds.
QUERIES = {
    "within": (
        "SELECT a.v, b.w FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 3 SECONDS",
        f"SELECT {_BOTH}, a.v, b.w FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + 3000000",
    ),
    "around": (
        "SELECT a.v, b.w FROM b JOIN a ON a.k = b.k AND a.ts - INTERVAL 2 SECONDS <= b.ts "
        "AND b.ts < a.ts + INTERVAL 4 SECONDS WHERE a.v <= b.w",
        f"SELECT {_BOTH}, a.v, b.w FROM a, b WHERE a.k = b.k AND a.ts - 2000000 <= b.ts "
        "AND b.ts < a.ts + 4000000 AND a.v <= b.w",
    ),
    "later": (
        "SELECT a.v, b.w FROM a, b WHERE a.k = b.k AND b.ts >= a.ts + INTERVAL 1 SECOND "
        "AND b.ts - a.ts < INTERVAL 5 SECONDS",
        f"SELECT {_BOTH}, a.v, b.w FROM a, b WHERE a.k = b.k AND b.ts >= a.ts + 1000000 "
        "AND b.ts - a.ts < 5000000",
    ),
    "narrowed": (
        "SELECT a.v, b.w FROM a [RANGE 9 SECONDS], b [RANGE 1 SECOND] "
        "WHERE a.k = b.k AND abs(a.v - b.w) < 3 AND a.ts >= b.ts - INTERVAL 2 SECONDS",
        f"SELECT {_BOTH}, a.v, b.w FROM a, b WHERE a.k = b.k AND abs(a.v - b.w) < 3 "
        "AND a.ts >= b.ts - 2000000 AND a.ts - b.ts < 1000000",
    ),
    "one_way": (
        "SELECT a.v, b.w FROM a [RANGE 4 SECONDS], b [NOW] WHERE a.k = b.k",
        f"SELECT {_BOTH}, a.v, b.w FROM a, b WHERE a.k = b.k AND b.ts >= a.ts AND b.ts - a.ts < 4000000",
    ),
    "local": (
        "SELECT a.v, b.w, c.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k "
        "AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 2 SECONDS "
        "AND c.ts BETWEEN b.ts AND b.ts + INTERVAL 3 SECONDS",
        "SELECT greatest(a.ts, b.ts, c.ts) AS _ts, a.v, b.w, c.x FROM a, b, c WHERE a.k = b.k AND b.k = c.k "
        "AND b.ts BETWEEN a.ts - 1000000 AND a.ts + 2000000 AND c.ts BETWEEN b.ts AND b.ts + 3000000",
    ),
    "left_within": (
        "SELECT a.v, b.w FROM a LEFT JOIN b ON a.k = b.k AND b.w > 2 "
        "AND b.ts BETWEEN a.ts - INTERVAL 1 SECOND AND a.ts + INTERVAL 3 SECONDS",
        "SELECT CASE WHEN b.ts IS NULL THEN a.ts + 3000001 ELSE greatest(a.ts, b.ts) END, a.v, b.w "
        "FROM a LEFT JOIN b ON a.k = b.k AND b.w > 2 AND b.ts BETWEEN a.ts - 1000000 AND a.ts + 3000000",
    ),
    "anti_later": (
        "SELECT a.v FROM a ANTI JOIN b ON a.k = b.k AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL 2 SECONDS",
        "SELECT a.ts + 2000001, a.v FROM a "
        "ANTI JOIN b ON a.k = b.k AND b.ts > a.ts AND b.ts <= a.ts + 2000000",
    ),
    "lefts": (
        "SELECT a.v, b.w, c.x FROM a [RANGE 4 SECONDS] LEFT JOIN b [RANGE 4 SECONDS] ON a.k = b.k "
        "LEFT JOIN c [RANGE 4 SECONDS] ON a.k = c.k",
        f"SELECT {_WHEN_KNOWN}, a.v, b.w, c.x {_LEFTS}",
    ),
    "lefts_where": (
        "SELECT a.v, b.w, c.x FROM a [RANGE 4 SECONDS] LEFT JOIN b [RANGE 4 SECONDS] ON a.k = b.k "
        "LEFT JOIN c [RANGE 4 SECONDS] ON a.k = c.k WHERE a.v > 1 AND b.w IS NULL AND coalesce(c.x, 3) < 4",
        f"SELECT {_WHEN_KNOWN}, a.v, b.w, c.x {_LEFTS} "
        "WHERE a.v > 1 AND b.w IS NULL AND coalesce(c.x, 3) < 4",
    ),
    "inner_then_left": (
        "SELECT a.v, b.w, c.x FROM a [RANGE 4 SECONDS] JOIN b [RANGE 4 SECONDS] ON a.k = b.k AND a.v <= b.w "
        "LEFT JOIN c [RANGE 4 SECONDS] ON b.k = c.k AND c.x > 1",
        "SELECT CASE WHEN c.ts IS NULL THEN least(a.ts, b.ts) + 4000000 ELSE greatest(a.ts, b.ts, c.ts) END, "
        f"a.v, b.w, c.x FROM a JOIN b ON a.k = b.k AND a.v <= b.w AND {_near('a', 'b', 4)} LEFT JOIN c "
        f"ON b.k = c.k AND c.x > 1 AND {_near('a', 'c', 4)} AND {_near('b', 'c', 4)}",
    ),
    "pairs_unless": (
        "SELECT a.v, b.w FROM a [RANGE 3 SECONDS] JOIN b [RANGE 3 SECONDS] USING (k) "
        "WHERE k NOT IN (SELECT k FROM c [RANGE 3 SECONDS] WHERE x > 2)",
        f"SELECT least(a.ts, b.ts) + 3000000, a.v, b.w FROM a JOIN b ON a.k = b.k AND {_near('a', 'b', 3)} "
        "WHERE NOT EXISTS (SELECT 1 FROM c WHERE x > 2 AND (c.k = a.k OR c.k IS NULL) "
        f"AND {_near('a', 'c', 3)} AND {_near('b', 'c', 3)})",
    ),
    "in_window": (
        "SELECT v FROM TUMBLE(a, ts, 5 SECONDS) AS l WHERE k IN (SELECT k FROM TUMBLE(b, ts, 5 SECONDS) AS r "
        "WHERE l.window_start = r.window_start AND l.window_end = r.window_end AND w < 5) AND v <> 2",
        "SELECT greatest(a.ts, (SELECT min(b.ts) FROM b WHERE b.k = a.k AND b.w < 5 "
        f"AND {_IN_WINDOW})) AS _ts, v FROM a WHERE v <> 2 AND _ts IS NOT NULL AND EXISTS "
        f"(SELECT 1 FROM b WHERE b.k = a.k AND b.w < 5 AND {_IN_WINDOW})",
    ),
    "not_in_window": (
        "SELECT v FROM TUMBLE(a, ts, 5 SECONDS) AS l WHERE k NOT IN (SELECT k FROM TUMBLE(b, ts, 5 SECONDS) "
        "AS r WHERE l.window_start = r.window_start AND l.window_end = r.window_end)",
        f"SELECT a.ts + 5000000, v FROM a WHERE k NOT IN (SELECT k FROM b WHERE {_IN_WINDOW})",
    ),
    "not_in_this_window": (
        "SELECT v FROM TUMBLE(a, ts, 5 SECONDS) AS l WHERE NOT EXISTS (SELECT 1 FROM TUMBLE(b, ts, 5 "
        "SECONDS) AS r WHERE l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end)",
        "SELECT a.ts + 5000000, v FROM a "
        f"WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k AND {_IN_WINDOW})",
    ),
    "as_of": (
        "SELECT a.v, b.w, b.ts FROM a ASOF JOIN b ON a.k = b.k AND b.ts <= a.ts",
        "SELECT a.ts, a.v, b.w, b.ts FROM a ASOF JOIN last_b AS b ON a.k = b.k AND a.ts >= b.ts",
    ),
    "as_of_left": (
        "SELECT a.k, a.v, b.w FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts > b.ts",
        "SELECT a.ts, a.k, a.v, b.w FROM a ASOF LEFT JOIN last_b AS b ON a.k = b.k AND a.ts > b.ts",
    ),
    "as_of_recent": (
        "SELECT a.v, b.w FROM a LEFT ASOF JOIN b [RANGE 3 SECONDS] ON a.k = b.k AND b.ts <= a.ts "
        "AND b.w <> 1 WHERE a.v > 1",
        "SELECT a.ts, a.v, CASE WHEN a.ts - b.ts < 3000000 THEN b.w END FROM a ASOF LEFT JOIN "
        "(SELECT k, ts, arg_max(w, n) AS w FROM b WHERE w <> 1 GROUP BY k, ts) AS b "
        "ON a.k = b.k AND a.ts >= b.ts WHERE a.v > 1",
    ),
    "as_of_all": (
        "SELECT a.v, c.x FROM a ASOF JOIN c ON c.ts < a.ts",
        "SELECT a.ts, a.v, c.x FROM a ASOF JOIN (SELECT ts, arg_max(x, n) AS x FROM c GROUP BY ts) AS c "
        "ON a.ts > c.ts",
    ),
    "versions": (
        "SELECT a.v, r.w FROM a JOIN b FOR SYSTEM_TIME AS OF a.ts AS r ON a.k = r.k WHERE r.w > 2",
        "SELECT a.ts, a.v, b.w FROM a ASOF JOIN last_b AS b ON a.k = b.k AND a.ts >= b.ts WHERE b.w > 2",
    ),
    "existing": (
        "SELECT v FROM a WHERE k IN (SELECT k FROM b [RANGE 3 SECONDS] WHERE w > 1) AND v < 5",
        "SELECT a.ts, v FROM a WHERE v < 5 AND EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND w > 1 "
        "AND b.ts <= a.ts AND a.ts - b.ts < 3000000)",
    ),
    "not_existing": (
        "SELECT v FROM a [RANGE 2 SECONDS] WHERE NOT EXISTS (SELECT 1 FROM b [NOW] WHERE b.k = a.k)",
        "SELECT a.ts + 2000000, v FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k "
        "AND b.ts >= a.ts AND b.ts - a.ts < 2000000)",
    ),
    "in_groups": (
        "SELECT v FROM a WHERE k IN (SELECT k FROM b [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k "
        "HAVING count(*) > 1) AND v < 5",
        "SELECT a.ts, v FROM a WHERE v < 5 AND EXISTS (SELECT 1 FROM b WHERE b.k = a.k "
        "AND b.ts >= a.ts - a.ts % 2000000 - 4000000 AND b.ts < a.ts - a.ts % 2000000 HAVING count(*) > 1)",
    ),
    "not_in_groups": (
        "SELECT v FROM a WHERE k NOT IN (SELECT k FROM b [RANGE 3 SECONDS SLIDE 3 SECONDS] GROUP BY k)",
        "SELECT a.ts + 1, v FROM a WHERE k NOT IN (SELECT k FROM b "
        "WHERE b.ts >= a.ts - a.ts % 3000000 - 3000000 AND b.ts < a.ts - a.ts % 3000000)",
    ),
}
CATALOG = bind(DECLARED + "".join(f"CREATE QUERY {n} AS {q};" for n, (q, _) in QUERIES.items())).catalog
GRAPH = build_graph(CATALOG)

Streams = dict[str, list[tuple[int, tuple[object, ...]]]]
events = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.sampled_from("aabbc"),
        st.one_of(st.integers(0, 2), st.none()),
        st.one_of(st.integers(0, 6), st.none()),
    ),
    max_size=24,
)


def by_sql(streams: Streams, query: str) -> list[str]:
    database = duckdb.connect(config={"threads": 1})
    for name, value in (("a", "v"), ("b", "w"), ("c", "x")):
        database.execute(f"CREATE TABLE {name} (k int, {value} int, ts bigint, n int)")
        rows = [(*row, number) for number, (_, row) in enumerate(streams[name])]
        if rows:
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
    # The last row of those with equal key and time, because DuckDB would take any.
    database.execute(
        "CREATE VIEW last_b AS SELECT k, ts, arg_max(struct_pack(w := w), n).w AS w FROM b GROUP BY k, ts"
    )
    found = database.execute(QUERIES[query][1]).fetchall()
    return sorted(repr((row[0], row[1:])) for row in found)


def by_reference(streams: Streams) -> dict[str, list[str]]:
    engine = Engine(translate(optimize(GRAPH), CATALOG, {}))
    for name, tuples in streams.items():
        engine.feed(name, [Arrival(ts, row, ts) for ts, row in tuples])
    engine.run()
    return {query: sorted(repr((t.ts, t.row)) for t in engine.results(query)) for query in QUERIES}


def by_tasks(streams: Streams, borders: list[int]) -> dict[str, list[str]]:
    graph = share(optimize(GRAPH), CATALOG)
    found: dict[str, list[str]] = {}
    for task in split_into_tasks(graph):
        program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=CATALOG, tables={}))
        rows: dict[str, list[Timed]] = {log: [] for _, log in task.outputs}
        for begin, end in pairwise([-1, *sorted(borders), END]):
            given_ = {}
            for log in task.inputs:
                numbered = [
                    (n, Timed(ts, row)) for n, (ts, row) in enumerate(streams[log]) if begin <= ts < end
                ]
                schema = graph[graph.streams[log]].schema
                own = [timed for _, timed in numbered]
                given_[log] = to_table(own, schema, [0] * len(own), [n for n, _ in numbered])
            outcome = program.run(given_, dict.fromkeys(task.inputs, end))
            assert not outcome.errors
            for node_id, log in task.outputs:
                new = timed_rows(outcome.tables[log], graph[node_id].schema)
                assert all(a.ts <= b.ts for a, b in pairwise([*rows[log][-1:], *new]))
                rows[log] += new
        found |= {log: sorted(repr((t.ts, t.row)) for t in own) for log, own in rows.items()}
    return found


@pytest.mark.slow_cpu
@settings(max_examples=15, deadline=None)
@given(events, st.lists(st.integers(0, 15), max_size=3))
@example([(1, "b", 0, 3), (1, "a", 0, 2), (1, "b", 0, 4), (4, "a", 0, 5), (4, "b", None, 1)], [2, 4])
def test_joins_give_the_rows_of_duckdb_over_the_finished_input(
    arriving: list[tuple[int, str, int | None, int | None]], borders: list[int]
) -> None:
    streams: Streams = {name: [] for name in "abc"}
    for second, name, key, value in sorted(arriving, key=lambda event: event[0]):
        streams[name].append((second * SECOND, (key, value, second * SECOND)))
    reference = by_reference(streams)
    tasks = by_tasks(streams, [border * SECOND for border in borders])
    for query in QUERIES:
        expected = by_sql(streams, query)
        assert reference[query] == expected, query
        assert tasks[query] == expected, query

"""Joins whose rows leave when a column says so, by both engines, in all placements, against DuckDB."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.state import JoinState
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import feed_rows

SECOND = 1_000_000
DECLARED = """
CREATE STREAM a (k int, till timestamp, ts timestamp) ORDER BY ts;
CREATE STREAM b (k int, till timestamp, ts timestamp) ORDER BY ts;
CREATE STREAM c (k int, till timestamp, ts timestamp) ORDER BY ts;
"""
_ITEMS = "a.k, a.ts AS first, b.ts AS second"
_WHEN = "SELECT greatest(a.ts, b.ts) AS _ts, a.k, a.ts, b.ts FROM a, b WHERE"
_OLD_B = "(b.ts >= a.ts OR a.ts - b.ts < 2000000)"

# By name: what follows the select list in ESL, and in SQL over tables in which times are microseconds.
QUERIES = {
    "until": (
        "FROM a [EXPIRES AT till], b [NOW] WHERE a.k = b.k",
        "a.k = b.k AND b.ts >= a.ts AND b.ts < a.till",
    ),
    "natural": (
        "FROM a, b WHERE a.k = b.k AND b.ts BETWEEN a.ts AND a.till",
        "a.k = b.k AND b.ts BETWEEN a.ts AND a.till",
    ),
    "at_most": (
        "FROM a [RANGE 4 SECONDS EXPIRES AT till + INTERVAL 1 SECOND], b [RANGE 2 SECONDS] WHERE a.k = b.k",
        f"a.k = b.k AND b.ts - a.ts < 4000000 AND b.ts < a.till + 1000000 AND {_OLD_B}",
    ),
    "both": (
        "FROM a [EXPIRES AT till] JOIN b [EXPIRES AT b.till] ON a.k = b.k AND a.ts <> b.ts",
        "a.k = b.k AND a.ts <> b.ts AND b.ts < a.till AND a.ts < b.till",
    ),
    "plain": (
        "FROM a [RANGE 6 SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k AND a.ts >= b.ts - INTERVAL 6 SECONDS",
        f"a.k = b.k AND b.ts - a.ts < 6000000 AND {_OLD_B}",
    ),
    "any_key": (
        "FROM a [EXPIRES AT till], b [NOW] WHERE a.k < b.k",
        "a.k < b.k AND b.ts >= a.ts AND b.ts < a.till",
    ),
}


def _without(side: str, pairs: str, end: str) -> str:
    """Rows of a table that are in no pair, at their end, or just behind their own time."""
    items = "k, ts, NULL" if side == "a" else "NULL, NULL, ts"
    return f"""SELECT greatest({end}, ts + 1) AS _ts, {items} FROM {side}
    WHERE NOT EXISTS (SELECT 1 FROM ({pairs}) AS p WHERE p.{side}_row = {side}.rowid)"""


_ROWS = (
    "SELECT greatest(a.ts, b.ts) AS _ts, a.k, a.ts AS a_ts, b.ts AS b_ts, a.rowid AS a_row, b.rowid AS b_row"
)
_UNTIL = f"{_ROWS} FROM a, b WHERE a.k = b.k AND b.ts >= a.ts AND b.ts < a.till"
_SHORT = f"""{_ROWS} FROM a, b WHERE a.k = b.k AND b.ts < a.till + 1000000 AND b.ts - a.ts < 4000000
AND a.ts < b.till"""
_TILL = "coalesce(till, 0)"
# Joins that tell of rows without a partner: the statement in SQL.
OUTER = {
    "left_until": (
        "FROM a [EXPIRES AT till] LEFT JOIN b [NOW] ON a.k = b.k",
        f"SELECT _ts, k, a_ts, b_ts FROM ({_UNTIL}) UNION ALL {_without('a', _UNTIL, _TILL)}",
    ),
    "left_natural": (
        "FROM a LEFT JOIN b ON a.k = b.k AND b.ts >= a.ts AND b.ts < a.till",
        f"SELECT _ts, k, a_ts, b_ts FROM ({_UNTIL}) UNION ALL {_without('a', _UNTIL, _TILL)}",
    ),
    "full_short": (
        "FROM a [RANGE 4 SECONDS EXPIRES AT till + INTERVAL 1 SECOND] FULL JOIN b [EXPIRES AT till]"
        " ON a.k = b.k",
        f"""SELECT _ts, k, a_ts, b_ts FROM ({_SHORT})
        UNION ALL {_without("a", _SHORT, "least(coalesce(till + 1000000, 0), ts + 4000000)")}
        UNION ALL {_without("b", _SHORT, _TILL)}""",
    ),
}
# Joins of three streams: rows of all that are there together.
TRIPLES = {
    "three": (
        "FROM a [EXPIRES AT till], b [RANGE 3 SECONDS], c [NOW] WHERE a.k = b.k AND b.k = c.k",
        """a.k = b.k AND b.k = c.k AND b.ts < a.till AND c.ts < a.till AND c.ts - b.ts < 3000000
        AND (a.ts <= b.ts OR a.ts - b.ts < 3000000) AND c.ts >= a.ts AND c.ts >= b.ts""",
    ),
    "both_expire": (
        "FROM a [EXPIRES AT till], b [EXPIRES AT b.till], c [NOW] WHERE a.k = b.k AND b.k = c.k",
        """a.k = b.k AND b.k = c.k AND b.ts < a.till AND c.ts < a.till AND a.ts < b.till AND c.ts < b.till
        AND c.ts >= a.ts AND c.ts >= b.ts""",
    ),
    "any_three": (
        "FROM a [RANGE 3 SECONDS], b [RANGE 5 SECONDS EXPIRES AT b.till], c [NOW]"
        " WHERE a.k = b.k AND b.k < c.k",
        """a.k = b.k AND b.k < c.k AND a.ts < b.till AND c.ts < b.till AND c.ts >= a.ts AND c.ts >= b.ts
        AND c.ts - a.ts < 3000000 AND c.ts - b.ts < 5000000""",
    ),
}
SELECTS = {name: f"SELECT {_ITEMS} {text}" for name, (text, _) in (QUERIES | OUTER | TRIPLES).items()}
CATALOG = bind(DECLARED + "".join(f"CREATE QUERY {n} AS {select};" for n, select in SELECTS.items())).catalog
GRAPH = build_graph(CATALOG)

Streams = dict[str, list[tuple[int, tuple[object, ...]]]]
events = st.lists(
    st.tuples(
        st.integers(0, 14),
        st.sampled_from("aabbc"),
        st.one_of(st.integers(0, 2), st.none()),
        st.one_of(st.integers(0, 16), st.none()),
    ),
    max_size=24,
)


def by_sql(streams: Streams, query: str) -> list[str]:
    database = duckdb.connect(config={"threads": 1})
    for name in "abc":
        database.execute(f"CREATE TABLE {name} (k int, till bigint, ts bigint)")
        if streams[name]:
            database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", [row for _, row in streams[name]])
    asked = OUTER[query][1] if query in OUTER else f"{_WHEN} {QUERIES[query][1]}" if query in QUERIES else ""
    latest = "greatest(a.ts, b.ts, c.ts) AS _ts, a.k, a.ts, b.ts"
    asked = asked or f"SELECT {latest} FROM a, b, c WHERE {TRIPLES[query][1]}"
    found = database.execute(asked).fetchall()
    return sorted(repr((row[0], row[1:])) for row in found)


def by_reference(streams: Streams) -> dict[str, list[str]]:
    engine = Engine(translate(optimize(GRAPH), CATALOG, {}))
    for name, tuples in streams.items():
        engine.feed(name, [Arrival(ts, row, ts) for ts, row in tuples])
    engine.run()
    return {query: sorted(repr((t.ts, t.row)) for t in engine.results(query)) for query in SELECTS}


def by_tasks(streams: Streams, borders: list[int]) -> dict[str, list[str]]:
    graph = share(optimize(GRAPH), CATALOG)
    members = [len(node.operator.members) for node in graph if isinstance(node.operator, SharedJoin)]
    assert sorted(members) == [1, 8], "those on one key share their slices"
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
                rows[log] += timed_rows(outcome.tables[log], graph[node_id].schema)
        found |= {log: sorted(repr((t.ts, t.row)) for t in own) for log, own in rows.items()}
    return found


@pytest.mark.slow_cpu
@settings(max_examples=15, deadline=None)
@given(events, st.lists(st.integers(0, 15), max_size=4))
@example([(1, "a", 0, 3), (2, "b", 0, None), (3, "b", 0, 1), (4, "b", 0, 9), (5, "a", 0, 2)], [2, 4])
def test_rows_that_expire_give_what_sql_gives_over_the_finished_input(
    arriving: list[tuple[int, str, int | None, int | None]], borders: list[int]
) -> None:
    streams: Streams = {name: [] for name in "abc"}
    for second, name, key, till in sorted(arriving, key=lambda event: event[0]):
        end = None if till is None else till * SECOND
        streams[name].append((second * SECOND, (key, end, second * SECOND)))
    reference = by_reference(streams)
    tasks = by_tasks(streams, [border * SECOND for border in borders])
    for query in SELECTS:
        expected = by_sql(streams, query)
        assert reference[query] == expected, query
        assert tasks[query] == expected, query


def test_rows_leave_the_state_when_time_has_passed_what_their_column_says() -> None:
    catalog = bind(f"{DECLARED} CREATE QUERY until AS {SELECTS['until']};").catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    schema = graph[graph.streams["a"]].schema
    kept = []
    for second in range(40):
        own = [
            Timed(second * SECOND + n, (n % 7, second * SECOND + (n % 3) * SECOND, second * SECOND + n))
            for n in range(3_000)
        ]
        tables = {name: to_table(rows, schema, [0] * len(rows)) for name, rows in (("a", own), ("b", []))}
        program.run(tables, dict.fromkeys("ab", (second + 1) * SECOND))
        (state,) = program.states.values()
        assert isinstance(state, JoinState)
        kept.append(sum(held.rows for held in state.held()))
    # A third of a second's rows live for one second, a third for two; what has half gone is written anew.
    assert max(kept[10:]) <= 3 * 3_000 and min(kept) >= 1_000


def results(folder: Path, placement: str, query: str) -> list[Timed]:
    """With a restart in between; a crash, so that what was in memory only is replayed."""
    clock, rows = Clock(), []
    for first in (0, 10):
        mill = open_mill(
            home=folder, pool=inline_pool(2), clock=clock, subtasks=4, placement=placement, read_sources=False
        )
        mill.execute(f"{DECLARED} CREATE QUERY q AS {query};")
        mill.open()
        for number in range(first, first + 10):
            clock.now += SECOND
            ts = number * SECOND
            feed_rows(mill, "a", [(n % 5, ts + (n % 4) * SECOND, ts) for n in range(8)])
            feed_rows(mill, "b", [((n + number) % 5, None, ts) for n in range(6)])
            if "c" in mill.running.streams:
                feed_rows(mill, "c", [(number % 5, None, ts)])
            mill.dispatcher.run_all()
        if first:
            mill.drain()
            rows = list(mill.queries["q"].timed_rows())
        mill.close(checkpoint=False)
    return rows


@pytest.mark.parametrize(
    ("query", "placements"),
    [
        ("until", ("key", "time", "auto")),
        ("any_key", ("time",)),
        ("left_until", ("key",)),
        ("three", ("key",)),
    ],
)
def test_rows_are_the_same_in_all_placements_and_over_a_crash(
    tmp_path: Path, query: str, placements: tuple[str, ...]
) -> None:
    alone = results(tmp_path / "one", "one", SELECTS[query])
    assert len(alone) > 50
    for placement in placements:
        assert results(tmp_path / placement, placement, SELECTS[query]) == alone

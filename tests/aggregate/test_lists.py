"""Lists: collected values against DuckDB, and their format in each protocol."""

from __future__ import annotations

import json
import math
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.aggregates import lists
from slicemill.binder import bind
from slicemill.columns.keys import comparable
from slicemill.columns.rows import timed_rows, to_table
from slicemill.connectors.sinks import folder as json_lines
from slicemill.connectors.sinks.console import show_value
from slicemill.connectors.sinks.postgres import postgres_type
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.server.encoding import csv_text, json_rows
from slicemill.server.postgres.values import describe_columns, encode_columns
from slicemill.testing import Clock, inline_pool
from slicemill.time import END
from slicemill.types import BIGINT, TIMESTAMP, Timed, list_of
from support.engine import fed_mill, feed_rows

SECOND = 1_000_000
SCRIPT = """CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts;
CREATE QUERY q AS SELECT k, collect_list(v) AS l, collect_set(v) AS d, array_agg(v) FILTER (WHERE v > 1) AS f
FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k;"""
CATALOG = bind(SCRIPT).catalog


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.none() | st.integers(0, 3)), max_size=20),
    st.integers(0, 20),
)
@example([(0, 0, None), (1, 0, 2), (0, 0, 2)], 1)
def test_windows_collect_the_lists_of_duckdb(
    arriving: list[tuple[int, int, int | None]], border: int
) -> None:
    rows, now = [], 0
    for step, key, value in arriving:
        now += step * SECOND
        rows.append(Timed(now, (key, value, now)))
    graph = share(optimize(build_graph(CATALOG)), CATALOG)
    (unit,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=unit, graph=graph, catalog=CATALOG, tables={}))
    schema = graph[graph.streams["s"]].schema
    found: list[Timed] = []
    known = rows[border].ts if border < len(rows) else END
    for part, first, complete in ((rows[:border], 0, known), (rows[border:], border, END)):
        numbers = list(range(first, first + len(part)))
        outcome = program.run({"s": to_table(part, schema, [0] * len(part), numbers)}, {"s": complete})
        found += timed_rows(outcome.tables["q"], CATALOG.queries["q"].schema)
    with duckdb.connect() as db:
        db.execute("CREATE TABLE s (n int, k int, v bigint, ts bigint)")
        if rows:
            db.executemany("INSERT INTO s VALUES (?, ?, ?, ?)", [(n, *t.row) for n, t in enumerate(rows)])
        expected = db.sql("""
            WITH ends AS (SELECT range * 2000000 AS e FROM range(0, 100)),
            held AS (SELECT e, s.* FROM s JOIN ends ON ts >= e - 6000000 AND ts < e)
            SELECT e, k, coalesce(list(v ORDER BY n) FILTER (WHERE v IS NOT NULL), []) AS l,
                coalesce(list(v ORDER BY n) FILTER (WHERE v > 1), []) AS f
            FROM held GROUP BY e, k""").fetchall()
    as_sql = {
        (e, k, tuple(values), tuple(dict.fromkeys(values)), tuple(some)) for e, k, values, some in expected
    }
    assert {(t.ts, *t.row) for t in found} == as_sql and len(found) == len(as_sql)


def test_lists_have_the_format_of_each_protocol() -> None:
    table = pa.table(
        {
            "l": pa.array([[1, 2], [], None], pa.list_(pa.int64())),
            "t": pa.array([['a"b', "c\\d"], [""], []], pa.list_(pa.string())),
            "at": pa.array([[1_500_000], [], []], pa.list_(pa.timestamp("us", "UTC"))),
            "x": pa.array([[math.nan, 0.5], [], []], pa.list_(pa.float64())),
        }
    )
    first = {"l": [1, 2], "t": ['a"b', "c\\d"], "at": ["1970-01-01T00:00:01.500000Z"], "x": ["NaN", 0.5]}
    assert json.loads(json_rows(table))[0] == first
    assert json.loads(json_rows(table))[2]["l"] is None
    assert csv_text(table).decode().splitlines()[1].startswith('"[1, 2]",')
    lines = json_lines.encode_json_lines(
        table.add_column(0, "_ts", pa.array([0, 0, 0], pa.timestamp("us", "UTC")))
    )
    assert json.loads(lines.decode().splitlines()[0])["t"] == ['a"b', "c\\d"]
    assert [column.oid for column in describe_columns(table.schema)] == [1016, 1009, 1185, 1022]
    texts = encode_columns(table)
    assert texts[0] == [b'{"1","2"}', b"{}", None]
    assert texts[1][:2] == [b'{"a\\"b","c\\\\d"}', b'{""}']
    assert texts[2][0] == b'{"1970-01-01 00:00:01.500000+00"}'
    (binary, *_) = encode_columns(table.select(["l"]), [1])
    assert binary[0] is not None and binary[0][:20].hex() == "0000000100000000000000140000000200000001"
    assert postgres_type(list_of(TIMESTAMP)) == "timestamptz[]"
    assert show_value((1, 2), list_of(BIGINT)) == "[1, 2]"


def test_lists_are_equal_if_their_elements_are_equal() -> None:
    lists = pa.array([[0.0, math.nan], [-0.0, math.nan], [], None, [1.0]], pa.list_(pa.float64()))
    (same,) = comparable(lists.slice(0))
    values = same.to_pylist()
    assert values[0] == values[1] and values[3] is None and len(set(values)) == 4
    assert comparable(lists.slice(1, 2))[0].to_pylist() == values[1:3]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT k, collect_list(v) AS l FROM s GROUP BY k",
        "SELECT k, collect_set(v) AS l FROM s GROUP BY k",
        "SELECT k, array_agg(v) OVER (PARTITION BY k RANGE UNBOUNDED PRECEDING) AS l FROM s",
        "SELECT n, collect_list(k) AS l FROM (SELECT k, count(*) * 0 AS n FROM s GROUP BY k) AS c GROUP BY n",
    ],
)
@pytest.mark.parametrize("at_once", [False, True])
def test_a_too_long_list_over_the_whole_history_stops_only_its_own_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str, at_once: bool
) -> None:
    monkeypatch.setattr(lists, "LONGEST", 5)
    declared = SCRIPT.partition("CREATE QUERY")[0]
    others = "CREATE QUERY short AS SELECT k, collect_list(v) AS l FROM s [RANGE 60 SECONDS] GROUP BY k;"
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        mill.execute(f"{declared}CREATE QUERY q AS {query}; {others}")
        mill.open()
        by_group = "count" in query
        rows = [(index if by_group else 1, index, index * SECOND) for index in range(1, 8)]
        for part in [rows] if at_once else [[row] for row in rows]:
            feed_rows(mill, "s", part)
            mill.dispatcher.run_all()
            if part[-1] == rows[4]:
                assert mill.queries["q"].error is None
        assert "a list of one group has more than 5 values; collect them over a window" in (
            mill.queries["q"].error or ""
        )
        assert mill.queries["short"].error is None
        assert len(mill.queries["short"].timed_rows()) == len(rows)

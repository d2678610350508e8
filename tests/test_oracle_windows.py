"""Every built-in aggregate over every kind of window, on both engines, against DuckDB.

SQL's RANGE frame includes later rows of the same timestamp, which a stream does not know yet, so
timestamps differ here.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.hashes import priority
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate

# The call in ESL and in DuckDB; {w} is the window.
CALLS = {
    "count(*)": "count(*) OVER {w}",
    "count(v)": "count(v) OVER {w}",
    "count(DISTINCT v)": "count(DISTINCT v) OVER {w}",
    "sum(v)": "sum(v) OVER {w}",
    "sum(i)": "sum(i) OVER {w}",
    "avg(v)": "avg(v) OVER {w}",
    "avg(i)": "avg(i) OVER {w}",
    "mean(v)": "avg(v) OVER {w}",
    "mean(i)": "avg(i) OVER {w}",
    "variance(v)": "var_samp(v) OVER {w}",
    "var_samp(v)": "var_samp(v) OVER {w}",
    "var_pop(v)": "var_pop(v) OVER {w}",
    "stddev(v)": "stddev_samp(v) OVER {w}",
    "stddev_samp(i)": "stddev_samp(i) OVER {w}",
    "stddev_pop(v)": "stddev_pop(v) OVER {w}",
    # DuckDB's own skewness and kurtosis are those of a sample.
    "skewness(v)": "CASE WHEN min(v) OVER {w} < max(v) OVER {w} THEN"
    " (avg(v ** 3) OVER {w} - 3 * avg(v) OVER {w} * avg(v ** 2) OVER {w} + 2 * (avg(v) OVER {w}) ** 3)"
    " / (var_pop(v) OVER {w}) ** 1.5 END",
    "kurtosis(i)": "CASE WHEN min(i) OVER {w} < max(i) OVER {w} THEN kurtosis_pop(i) OVER {w} END",
    "min(v)": "min(v) OVER {w}",
    "max(t)": "max(t) OVER {w}",
    "min_by(t, n)": "arg_min_null(t, n) OVER {w}",
    "max_by(v, n)": "arg_max_null(v, n) OVER {w}",
    "first(v)": "first_value(v) OVER {w}",
    "last(t)": "last_value(t) OVER {w}",
    "nth_value(v, 2)": "nth_value(v, 2) OVER {w}",
    "median(v)": "median(v) OVER {w}",
    "percentile(v, 0.3)": "quantile_cont(v, 0.3) OVER {w}",
    "quantile(i, 0.9)": "quantile_cont(CAST(i AS DOUBLE), 0.9) OVER {w}",
    "listagg(t, '-')": "string_agg(t, '-') OVER {w}",
    "string_agg(t, '')": "string_agg(t, '') OVER {w}",
    "priority_sample(v)": "arg_max_null(v, p) OVER {w}",
    # Few items are counted exactly, and so are ones if there are few.
    "approx_count(t)": "CASE WHEN t IS NOT NULL THEN len(list_filter(list(t) OVER {w}, lambda x: x = t)) END",
    "collect_list(v)": "coalesce(list(v) FILTER (WHERE v IS NOT NULL) OVER {w}, [])",
    "array_agg(t)": "coalesce(list(t) FILTER (WHERE t IS NOT NULL) OVER {w}, [])",
    "approx_count_if(i > 0)": "count(CASE WHEN i > 0 THEN 1 END) OVER {w}",
}
FRAMES = ("ROWS 2 PRECEDING", "RANGE 3 SECONDS PRECEDING", "RANGE UNBOUNDED PRECEDING")
SECOND = 1_000_000


def _script(frame: str) -> str:
    calls = ", ".join(f"{call} OVER (PARTITION BY k {frame}) AS c{n}" for n, call in enumerate(CALLS))
    return f"""CREATE STREAM S (n int, k varchar, v double, i int, t varchar) ORDER BY current_time;
        CREATE QUERY q AS SELECT n, {calls} FROM S"""


CATALOGS = {frame: bind(_script(frame)).catalog for frame in FRAMES}


def priorities(tuples: list[Timed]) -> list[int]:
    """Return the priorities by sequence numbers within partitions."""
    arrived: Counter[object] = Counter()
    found = []
    for _, (_, key, *_) in tuples:
        found.append(priority(arrived[key]))
        arrived[key] += 1
    return found


def by_duckdb(tuples: list[Timed], frame: str) -> list[tuple[Any, ...]]:
    bounds = frame.replace("3 SECONDS", str(3 * SECOND)).replace(" PRECEDING", "")
    task, extent = bounds.split(" ", 1)
    window = f"(PARTITION BY k ORDER BY ts {task} BETWEEN {extent} PRECEDING AND CURRENT ROW)"
    items = ", ".join(call.format(w=window) for call in CALLS.values())
    with duckdb.connect() as db:
        db.execute(
            "CREATE TABLE s (ts BIGINT, p UBIGINT, n INTEGER, k VARCHAR, v DOUBLE, i INTEGER, t VARCHAR)"
        )
        if tuples:
            rows = [(t.ts, p, *t.row) for t, p in zip(tuples, priorities(tuples), strict=True)]
            db.executemany("INSERT INTO s VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return db.sql(f"SELECT n, {items} FROM s ORDER BY n").fetchall()


def by_reference(tuples: list[Timed], catalog: Catalog) -> list[tuple[Any, ...]]:
    engine = Engine(translate(build_graph(catalog), catalog, {}))
    engine.feed("S", [Arrival(t.ts, t.row) for t in tuples])
    engine.run()
    return [t.row for t in engine.results("q")]


def by_tasks(tuples: list[Timed], catalog: Catalog, border: int) -> list[tuple[Any, ...]]:
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    schema, out = graph[graph.streams["S"]].schema, []
    for part, complete in ((tuples[:border], -END), (tuples[border:], END)):
        outcome = program.run({"S": to_table(part, schema, [0] * len(part))}, {"S": complete})
        assert not outcome.errors
        out += timed_rows(outcome.tables["q"], catalog.queries["q"].schema)
    return [t.row for t in out]


def like(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the row with approximate floats, and with lists as slicemill has them."""
    plain = (tuple(v) if isinstance(v, list) else v for v in row)
    return tuple(
        pytest.approx(v, abs=1e-9) if isinstance(v, float) and math.isfinite(v) else v for v in plain
    )


values = st.none() | st.integers(-8, 8).map(lambda n: n / 4)
rows = st.lists(
    st.tuples(
        st.integers(1, 3),
        st.sampled_from(["a", "b", None]),
        values,
        st.none() | st.integers(-3, 3),
        st.none() | st.sampled_from(["", "x", "yy", "ü"]),
    ),
    max_size=20,
)


@pytest.mark.parametrize("frame", FRAMES)
@settings(max_examples=25)
@given(rows, st.integers(0, 20))
def test_both_engines_give_the_window_aggregates_of_duckdb(
    frame: str, steps: list[tuple[int, str | None, float | None, int | None, str | None]], border: int
) -> None:
    tuples, ts = [], 0
    for n, (gap, *rest) in enumerate(steps):
        ts += gap * SECOND
        tuples.append(Timed(ts, (n, *rest)))
    expected = [like(row) for row in by_duckdb(tuples, frame)]
    assert by_reference(tuples, CATALOGS[frame]) == expected
    assert by_tasks(tuples, CATALOGS[frame], border) == expected

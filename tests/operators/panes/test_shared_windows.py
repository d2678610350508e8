"""Sharing is invisible: whatever queries run beside it, each gives the rows that it gives alone."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.errors import SlicemillError
from slicemill.operators.window import pane_state as state
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.tasks import exchanges_of, run_subtasks

STREAM = """
CREATE STREAM A (k int, g varchar, v bigint, w double, d decimal(10, 2)) ORDER BY current_time;
CREATE AGGREGATE spread(next bigint) : bigint
{ TABLE state(low bigint, high bigint);
  INITIALIZE : { INSERT INTO state VALUES (next, next); }
  ITERATE : { UPDATE state SET low = CASE WHEN next < low THEN next ELSE low END,
                               high = CASE WHEN next > high THEN next ELSE high END; }
  TERMINATE : { INSERT INTO RETURN SELECT high - low FROM state; } };
"""
SCHEMA = bind(STREAM).catalog.relation("A").schema  # type: ignore[union-attr]
SECOND = 1_000_000
AGGREGATES = [
    "count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(v)", "variance(v)", "stddev_pop(v)",
    "first(v)", "last(v)", "sum(w)", "avg(w)", "min(w)", "max(w)", "var_samp(w)", "sum(d)", "max(d)",
    "min(g)", "max(g)", "first(g)", "last(w)", "sum(v * v)", "sum(10 / v)", "sum(k)", "avg(k)",
]  # fmt: skip
BY_VALUE = ["median(v)", "count(DISTINCT g)", "spread(v)", "avg(d)", "quantile(v, 0.3)", "listagg(g)"]
FILTERS = ["", "v > 3", "g = 'a'", "w < 1", "v <> 0", "v BETWEEN 1 AND 5"]
KEYS = ["", "k", "g", "k, g", "w", "v % 2"]


@dataclass(frozen=True)
class Query:
    """A query that lives from one run to another."""

    calls: tuple[str, ...]
    keys: str
    where: str
    length: int
    slide: int
    over: bool
    having: bool
    first: int
    last: int

    def text(self, name: str) -> str:
        where = f" WHERE {self.where}" if self.where else ""
        length, slide = f"{self.length} MILLISECONDS", f"{self.slide} MILLISECONDS"
        if self.over:
            by = f"PARTITION BY {self.keys} " if self.keys else ""
            window = f"OVER ({by}RANGE {length} PRECEDING SLIDE {slide})"
            calls = ", ".join(f"{call} {window} AS c{i}" for i, call in enumerate(self.calls))
            return f"CREATE QUERY {name} AS SELECT k, w, {calls} FROM A{where};"
        calls = ", ".join([*(f"{call} AS c{i}" for i, call in enumerate(self.calls)), "window_end() AS e"])
        by = f" GROUP BY {self.keys}" if self.keys else ""
        having = f" HAVING {self.calls[0]} IS NOT NULL" if self.having else ""
        keys = f"{self.keys}, " if self.keys and "%" not in self.keys else ""
        return (
            f"CREATE QUERY {name} AS SELECT {keys}{calls} FROM A [RANGE {length} SLIDE {slide}]"
            f"{where}{by}{having};"
        )

    def closed(self, ts: int, until: int) -> bool:
        """Is the row at `ts` known when time has come to `until`?"""
        slide = self.slide * 1000
        return ((ts // slide + 1) * slide if self.over else ts) <= until


@st.composite
def queries(draw: st.DrawFn) -> Query:
    over = draw(st.booleans())
    pool = AGGREGATES if over or draw(st.integers(0, 3)) else AGGREGATES + BY_VALUE * 3
    calls = tuple(draw(st.lists(st.sampled_from(pool), min_size=1, max_size=3, unique=True)))
    first = draw(st.sampled_from([0, 0, 1, 2]))
    return Query(
        calls,
        draw(st.sampled_from(KEYS)),
        draw(st.sampled_from(FILTERS)),
        draw(st.sampled_from([500, 1000, 2000, 3000, 3500, 6000])),
        draw(st.sampled_from([500, 1000, 2000, 3000, 5000])),
        over,
        draw(st.booleans()),
        first,
        draw(st.sampled_from([3, 3, first])),
    )


doubles = st.one_of(
    st.integers(-500, 500).map(lambda cents: cents / 100),
    st.sampled_from([0.1, 1e16, -1e16, 1e300, 1.7e308, 5e-324, math.inf, -math.inf, math.nan, 0.0, -0.0]),
)
whole = st.one_of(st.integers(0, 9), st.sampled_from([2**40, -(2**40)]))
row = st.tuples(
    st.one_of(st.none(), st.integers(0, 3)),
    st.one_of(st.none(), st.sampled_from(["a", "b", "", "ä"])),
    st.one_of(st.none(), whole),
    st.one_of(st.none(), doubles),
    st.one_of(st.none(), st.integers(-999, 999).map(lambda cents: Decimal(cents) / 100)),
)
gaps = st.sampled_from([0, 0, 1, 250, 500, 999, 1000, 2500, 9000])


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[list[Timed], int]]:
    """Four runs: tuples, and how far the stream is complete behind them."""
    made, now = [], draw(st.sampled_from([-3000, 0, 7000]))
    for _ in range(4):
        tuples = []
        for _ in range(draw(st.integers(0, 6))):
            now += draw(gaps)
            tuples.append(Timed(now * 1000, draw(row)))
        now += draw(gaps)
        made.append((tuples, now * 1000))
    return [*made[:-1], (made[-1][0], END)]


def by_reference(query: Query, given: list[tuple[list[Timed], int]]) -> list[str] | None:
    """What the query gives alone; None if it fails."""
    catalog = bind(STREAM + query.text("q")).catalog
    engine = Engine(translate(build_graph(catalog), catalog, {}))
    engine.feed(
        "A", [Arrival(t.ts, t.row) for tuples, _ in given[query.first : query.last + 1] for t in tuples]
    )
    try:
        engine.run()
    except SlicemillError:
        return None
    until = given[query.last][1]
    return [shown(t) for t in engine.results("q") if query.closed(t.ts, until)]


def shown(timed: Timed) -> str:
    return repr((timed.ts, [plain(value) for value in timed.row]))


def plain(value: object) -> object:
    """A value in a form that is the same for equal ones."""
    if isinstance(value, Decimal):
        return str(value.normalize())
    return value


def together(
    chosen: list[Query], given: list[tuple[list[Timed], int]], subtasks: int, folder: Path
) -> tuple[dict[str, list[str]], dict[str, str]]:
    """All queries in one graph that changes between runs, with state that is stored and loaded."""
    found: dict[str, list[str]] = {f"q{i}": [] for i in range(len(chosen))}
    failed: dict[str, str] = {}
    stored: dict[tuple[str, int], list[list[Any]]] = {}
    complete: dict[tuple[str, int], int] = {}
    for number, (tuples, until) in enumerate(given):
        live = {f"q{i}": q for i, q in enumerate(chosen) if q.first <= number <= q.last}
        catalog = bind(STREAM + "".join(query.text(name) for name, query in live.items())).catalog
        graph = share(optimize(build_graph(catalog)), catalog)
        table = to_table(tuples, SCHEMA, [t.ts for t in tuples])
        kept = stored
        stored = {}
        for task in split_into_tasks(graph):
            assert task.stateful
            plan = TaskPlan(
                task=task,
                graph=graph,
                catalog=catalog,
                tables={},
                exchanges=exchanges_of(task, graph, subtasks),
            )
            programs = [
                TaskProgram(plan, read_checkpoint(folder, kept.get((task.id, subtask), ())))
                for subtask in range(plan.subtasks)
            ]
            for outcomes in run_subtasks(programs, {"A": table}, {"A": until}):
                for subtask, outcome in enumerate(outcomes):
                    failed |= outcome.errors
                    for log, rows in outcome.tables.items():
                        schema = graph[log].schema
                        made = timed_rows(rows, schema)
                        assert [t.ts for t in made] == sorted(t.ts for t in made)
                        assert all(t.ts >= complete.get((log, subtask), -END) for t in made)
                        complete[log, subtask] = outcome.watermarks[log]
                        found[log] += map(shown, made)
            for subtask, program in enumerate(programs):
                stored[task.id, subtask] = write_checkpoint(folder, program.states)
            if until == END:
                assert not any(outcome.due for outcome in outcomes)
    return found, failed


@pytest.mark.slow_cpu
@settings(max_examples=60)
@given(st.lists(queries(), min_size=1, max_size=5), runs(), st.sampled_from([1, 2, 5]), st.booleans())
def test_each_query_gives_what_it_gives_alone(
    chosen: list[Query], given: list[tuple[list[Timed], int]], subtasks: int, forgetful: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if forgetful:
            # Keys and patterns get other numbers whenever some are not used any more.
            patch.setattr(state, "_FEW", 0)
            patch.setattr(state, "_SMALL", 0)
        found, failed = together(chosen, given, subtasks, Path(folder))
    for number, query in enumerate(chosen):
        name = f"q{number}"
        expected = by_reference(query, given)
        if expected is None:
            # Alone it may be dropped before the window with the failing tuple ends.
            assert name in failed or query.last < 3, query
        elif name in failed:
            # A tuple whose argument has no value stops its query when it comes, not when its windows end.
            assert query.last < 3, failed[name]
        else:
            assert sorted(found[name]) == sorted(expected), query


def alone(text: str, given: list[tuple[list[Timed], int]]) -> list[list[Timed]]:
    """The rows of one query, run by run."""
    catalog = bind(STREAM + text).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    made = []
    for tuples, until in given:
        outcome = program.run({"A": to_table(tuples, SCHEMA, [t.ts for t in tuples])}, {"A": until})
        assert not outcome.errors
        made.append(timed_rows(outcome.tables["q"], graph["q"].schema))
    return made


def event(second: int) -> Timed:
    return Timed(second * SECOND, (1, "a", second, None, None))


def test_every_tuple_is_in_range_by_slide_windows() -> None:
    """G3: RANGE 100 SLIDE 5 has a boundary every 5, and maps each tuple to 20 windows."""
    text = "CREATE QUERY q AS SELECT count(*) AS n, min(v) AS low FROM A [RANGE 100 SECONDS SLIDE 5 SECONDS];"
    (rows,) = alone(text, [([event(second) for second in range(300)], END)])
    assert [t.ts for t in rows] == [end * SECOND for end in range(5, 400, 5)]
    assert sum(int(str(t.row[0])) for t in rows) == 20 * 300
    assert [t.row for t in rows if t.ts == 250 * SECOND] == [(100, 150)]


def test_windows_end_by_time_on_a_silent_stream() -> None:
    """G4: RANGE 100 SLIDE 10, a tuple every 20: what is due at 110 does not wait for the tuple at 120."""
    text = (
        "CREATE QUERY q AS SELECT min(v) AS low, count(*) AS n FROM A [RANGE 100 SECONDS SLIDE 10 SECONDS];"
    )
    arrived = [event(second) for second in range(0, 101, 20)]
    first, second, third = alone(text, [(arrived, 100 * SECOND), ([], 110 * SECOND), ([], 130 * SECOND)])
    assert first[-1] == Timed(100 * SECOND, (0, 5))
    assert second == [Timed(110 * SECOND, (20, 5))]
    assert third == [Timed(120 * SECOND, (20, 5)), Timed(130 * SECOND, (40, 4))]


def test_what_is_kept_does_not_grow() -> None:
    """Keys that have left all windows are forgotten, and so are their numbers."""
    text = "CREATE QUERY q AS SELECT v, sum(w) AS s FROM A [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY v;"
    catalog = bind(STREAM + text).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    for second in range(6):
        tuples = [Timed(second * SECOND, (1, "a", 1000 * second + n, 1.0, None)) for n in range(1000)]
        outcome = program.run({"A": to_table(tuples, SCHEMA, [0] * 1000)}, {"A": second * SECOND})
        values = {t.row for t in timed_rows(outcome.tables["q"], graph["q"].schema)}
        assert values == {(n, 1.0) for n in range(1000 * max(second - 2, 0), 1000 * second)}
    (kept,) = program.states.values()
    assert isinstance(kept, state.PaneState) and len(kept.keys) <= 5000

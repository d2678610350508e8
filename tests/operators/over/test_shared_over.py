"""Built-in aggregates with OVER of several queries: rows are kept once, and nobody sees it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.over.test_window_calls import SCHEMA, STREAM, Query, Runs, run, runs
from slicemill.binder import bind
from slicemill.columns.rows import to_table
from slicemill.operators.window.over import SharedOverState
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.types import Timed

SECOND = 1_000_000
CALLS = [
    "avg(x)",
    "sum(y)",
    "max(x)",
    "count(*)",
    "median(y)",
    "min(x + y)",
    "count(DISTINCT y)",
    "last_value(x)",
]
WINDOWS = [
    "PARTITION BY k ROWS 2 PRECEDING",
    "PARTITION BY k ROWS 5 PRECEDING",
    "PARTITION BY k RANGE 3 SECONDS PRECEDING",
    "PARTITION BY k RANGE 9 SECONDS PRECEDING",
]


@st.composite
def queries(draw: st.DrawFn) -> Query:
    first = draw(st.sampled_from([0, 0, 0, 1]))
    calls = st.lists(st.sampled_from(CALLS), min_size=1, max_size=3, unique=True)
    where = draw(st.sampled_from(["", "", "WHERE y > 1"]))
    last = draw(st.sampled_from([2, 2, first]))
    return Query(tuple(draw(calls)), draw(st.sampled_from(WINDOWS)), where, first, last)


@settings(max_examples=8, deadline=None)
@given(st.lists(queries(), min_size=2, max_size=5), runs(), st.sampled_from([1, 2]))
def test_each_query_gives_what_it_gives_alone(chosen: list[Query], given: Runs, subtasks: int) -> None:
    """Whoever comes and goes beside it, with state that is stored in between."""
    texts = {f"q{n}": query.text(f"q{n}") for n, query in enumerate(chosen)}
    lives = {f"q{n}": range(query.first, query.last + 1) for n, query in enumerate(chosen)}
    found, failed = run(texts, lives, given, subtasks)
    assert not failed
    for name, text in texts.items():
        alone, _ = run({name: text}, lives, given, subtasks)
        assert found[name] == alone[name], name


def states(*queries: str, before: dict[str, object] | None = None, first: int = 0) -> dict[str, object]:
    """What is kept behind 400 rows; `before` is what was kept before them."""
    texts = (f"CREATE QUERY q{QUERIES.index(query)} AS {query};\n" for query in queries)
    catalog = bind(STREAM + "".join(texts)).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}), before)
    rows = [Timed(n * SECOND, (n % 2, n * 0.1, 7.0 - n, n * SECOND)) for n in range(first, first + 400)]
    done = program.run({"s": to_table(rows, SCHEMA, [row.ts for row in rows])}, {"s": rows[-1].ts})
    assert not done.errors, done.errors
    return program.states


def stored_rows(found: dict[str, object]) -> list[list[int]]:
    (state,) = found.values()
    assert isinstance(state, SharedOverState)
    return [
        [
            sum(len(piece.table) for piece in group.slices) - group.passed
            if group.last is None
            else group.last.used
            for group in cohort.state.groups
        ]
        for cohort in state.cohorts
        if cohort.state is not None
    ]


LONG = "SELECT avg(x) OVER (PARTITION BY k RANGE 99 SECONDS PRECEDING) AS m FROM s"
SHORT = "SELECT max(y) OVER (PARTITION BY k RANGE 9 SECONDS PRECEDING) AS m FROM s"
COUNTED = "SELECT sum(x) OVER (PARTITION BY k ROWS 4 PRECEDING) AS m FROM s"


QUERIES = (LONG, SHORT, COUNTED)


def test_rows_are_kept_once_for_the_longest_window() -> None:
    (alone,) = stored_rows(states(LONG))
    assert stored_rows(states(LONG, SHORT)) == [alone]


def test_what_only_others_needed_goes_with_them() -> None:
    together = states(*QUERIES)
    ((_, counted),) = stored_rows(together)
    assert stored_rows(states(COUNTED, before=together, first=400)) == [[counted]]
    (state,) = together.values()
    assert isinstance(state, SharedOverState) and state.cohorts[0].state is not None
    (group,) = state.cohorts[0].state.groups
    assert group.last is not None
    assert {*group.last.added.pieces[0].table.column_names} == {"ts", "seq", "0"}


def test_who_comes_later_keeps_its_own_rows() -> None:
    first = states(LONG)
    assert len(stored_rows(states(LONG, SHORT, before=first, first=400))) == 2


def test_an_argument_without_value_stops_only_its_query() -> None:
    texts = {
        "q0": "CREATE QUERY q0 AS SELECT sum(x) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s;",
        "q1": "CREATE QUERY q1 AS SELECT sum(CAST(x * 1e300 AS bigint))"
        " OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s;",
    }
    rows: Runs = [([Timed(n * SECOND, (0, 1.0 + n, 1.0, n * SECOND)) for n in range(3)], 3 * SECOND)]
    found, failed = run(texts, dict.fromkeys(texts, range(1)), rows, 1)
    assert set(failed) == {"q1"} and len(found["q0"]) == 3

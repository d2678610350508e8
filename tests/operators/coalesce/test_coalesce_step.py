"""Temporal queries as tasks: the rows of the reference, whatever the runs, buckets and restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.explain.text import explain_text
from slicemill.operators.row_step import RowStep
from slicemill.operators.temporal.spec import Coalesce
from slicemill.operators.temporal.step import CoalesceStep
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.tasks import exchanges_of, run_subtasks

STREAM = "CREATE STREAM S (k int, v varchar, n int) ORDER BY current_time;\n"
WINDOW = "RANGE 30 MICROSECONDS SLIDES 10 MICROSECONDS"
QUERIES = {
    "time": f"CREATE QUERY q AS SELECT R.k, R.v, VALID(R) FROM S(v) AS R {WINDOW} PARTITION BY k",
    "selected": f"CREATE QUERY q AS SELECT R.v, VALID(R) FROM S(v) AS R {WINDOW} PARTITION BY k "
    "WHERE n > 1 AND CAST(VALID(R) AS INTERVAL MICROSECOND) >= 4",
    "rows": "CREATE QUERY q AS SELECT R.k, R.v, VALID(R) FROM S(v) AS R RANGE 8 ROWS SLIDES 3 ROWS "
    "PARTITION BY k",
    "alone": f"CREATE QUERY q AS SELECT R.n, R.v, VALID(R) FROM S(v, n) AS R {WINDOW}",
    "budget": "CREATE QUERY q WITH (memory = '6 tuples') AS SELECT R.k, R.v, VALID(R) "
    f"FROM S(v) AS R {WINDOW} PARTITION BY k",
    "by chance": "CREATE QUERY q WITH (memory = '2 KB', shedding = 'random') AS SELECT R.k, R.v, VALID(R) "
    "FROM S(v) AS R RANGE 8 ROWS SLIDES 3 ROWS PARTITION BY k",
    "runs": "CREATE QUERY q WITH (memory = '4 runs') AS SELECT R.k, R.v, VALID(R) "
    f"FROM S(v) AS R {WINDOW} PARTITION BY k",
}


def rows(random: Random, count: int) -> list[Timed]:
    ts, out = 0, []
    for _ in range(count):
        ts += random.choice([0, 1, 2, 3, 25])
        out.append(
            Timed(ts, (random.choice([1, 2, 3, None]), random.choice("aab"), random.choice([1, 2, 3])))
        )
    return out


def plan(name: str, subtasks: int) -> TaskPlan:
    catalog = bind(STREAM + QUERIES[name]).catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    return TaskPlan(
        task=task, graph=graph, catalog=catalog, tables={}, exchanges=exchanges_of(task, graph, subtasks)
    )


def reference(name: str, stream: list[Timed]) -> list[str]:
    catalog = bind(STREAM + QUERIES[name]).catalog
    engine = Engine(translate(build_graph(catalog), catalog, {}))
    engine.feed("S", [Arrival(timed.ts, timed.row) for timed in stream])
    engine.run()
    return sorted(repr(timed) for timed in engine.results("q"))


@pytest.mark.parametrize("name", QUERIES)
@settings(max_examples=5)
@given(seed=st.integers(0, 10**6))
def test_tasks_give_the_rows_of_the_reference(name: str, seed: int) -> None:
    random = Random(seed)
    stream = rows(random, 40)
    made = plan(name, random.choice([1, 3]))
    schema, out = made.graph[made.graph.streams["S"]].schema, []
    with tempfile.TemporaryDirectory() as folder:
        programs = [TaskProgram(made) for _ in range(made.subtasks)]
        start = 0
        while start < len(stream):
            part = stream[start : start + random.choice([1, 3, 9])]
            start += len(part)
            complete = END if start == len(stream) else part[-1].ts
            table = to_table(part, schema, [0] * len(part))
            for outcomes in run_subtasks(programs, {"S": table}, {"S": complete}):
                for subtask, outcome in enumerate(outcomes):
                    assert not outcome.errors
                    out += timed_rows(outcome.tables["q"], made.catalog.queries["q"].schema)
                    state = write_checkpoint(Path(folder), programs[subtask].states)
                    programs[subtask] = TaskProgram(made, read_checkpoint(Path(folder), state))
    assert sorted(map(repr, out)) == reference(name, stream)


@pytest.mark.parametrize("name", QUERIES)
def test_queries_with_a_budget_have_one_subtask_and_some_are_run_tuple_by_tuple(name: str) -> None:
    made = plan(name, 4)
    program = TaskProgram(made)
    (step,) = program._stateful.values()
    budget = "memory" in QUERIES[name]
    assert isinstance(step, RowStep if name in ("by chance", "runs") else CoalesceStep)
    assert made.subtasks == (4 if not budget and "PARTITION" in QUERIES[name] else 1)
    assert (program.sheds != {}) == budget


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("budget", "memory 6 tuples, shedding lookahead"),
        ("by chance", "memory 4 tuples, shedding random"),
        ("runs", "memory 4 runs, the shortest run goes first"),
    ],
)
def test_explain_says_what_memory_counts_and_what_goes(name: str, words: str) -> None:
    assert words in " ".join(explain_text(plan(name, 1).graph).split())


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("", "lookahead"),
        ("WHERE CAST(VALID(R) AS INTERVAL SECOND) < 5", "lookahead"),
        ("WHERE CAST(VALID(R) AS INTERVAL SECOND) > 5", ("threshold", 6_000_000)),
        ("WHERE 2 <= CAST(VALID(R) AS INTERVAL MINUTE) AND n > 3", ("threshold", 120_000_000)),
    ],
)
def test_a_query_that_asks_for_a_duration_is_shed_by_it(where: str, expected: object) -> None:
    query = f"CREATE QUERY q WITH (memory = '1 KiB') AS SELECT R.v FROM S(v) AS R {WINDOW} {where}"
    (operator,) = (
        node.operator
        for node in build_graph(bind(STREAM + query).catalog)
        if isinstance(node.operator, Coalesce)
    )
    assert operator.budget is not None
    assert operator.budget.capacity == 1024 // (42 + 32 + 5)
    found = (operator.budget.method, operator.budget.threshold)
    assert found == (expected if isinstance(expected, tuple) else (expected, None))

"""Built-in windows as a step: which queries get it, and that its state survives being stored."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Timed

STREAM = "CREATE STREAM S (k int, v double, t varchar) ORDER BY current_time;\n"
QUERIES = {
    "plain": "avg(v) OVER (PARTITION BY k RANGE 20 MICROSECONDS PRECEDING) AS a, "
    "max(t) OVER (PARTITION BY k ROWS 3 PRECEDING) AS b",
    "endless": "variance(v) OVER (PARTITION BY k RANGE UNBOUNDED PRECEDING) AS a, "
    "listagg(t) OVER (ROWS UNBOUNDED PRECEDING) AS b",
    "waiting": "median(v) OVER (RANGE 9 MICROSECONDS PRECEDING SLIDE 4 MICROSECONDS) AS a, "
    "sum(v) OVER (PARTITION BY k RANGE 5 MICROSECONDS PRECEDING ACTIVE EXPIRATION) AS b",
    "counting": "priority_sample(t) OVER (PARTITION BY k RANGE 9 MICROSECONDS PRECEDING) AS a, "
    "approx_count_if(v > 1) OVER (PARTITION BY k ROWS 4 PRECEDING SLIDE 3) AS b",
}


def rows(count: int) -> list[Timed]:
    random, ts, out = Random(3), 0, []
    for _ in range(count):
        ts += random.choice([0, 1, 2, 7])
        out.append(
            Timed(ts, (random.choice([1, 2, None]), random.choice([0.1, 2.0, None]), random.choice("xyz")))
        )
    return out


def run(items: str, parts: list[list[Timed]], folder: Path | None) -> list[Timed]:
    """The task of the query over the parts; with a folder, all state goes through files in between."""
    catalog = bind(f"{STREAM}CREATE QUERY q AS SELECT k, {items} FROM S").catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    plan = TaskPlan(task=task, graph=graph, catalog=catalog, tables={})
    schema, program, out = graph[graph.streams["S"]].schema, TaskProgram(plan), []
    for number, part in enumerate(parts):
        complete = END if number == len(parts) - 1 else part[-1].ts
        outcome = program.run({"S": to_table(part, schema, [0] * len(part))}, {"S": complete})
        assert not outcome.errors
        out += timed_rows(outcome.tables["q"], catalog.queries["q"].schema)
        if folder is not None:
            program = TaskProgram(plan, read_checkpoint(folder, write_checkpoint(folder, program.states)))
    return out


@pytest.mark.parametrize("name", QUERIES)
def test_stored_state_changes_no_row(name: str, tmp_path: Path) -> None:
    tuples = rows(60)
    parts = [tuples[start : start + 7] for start in range(0, 60, 7)]
    assert run(QUERIES[name], parts, tmp_path) == run(QUERIES[name], [tuples], None)


def test_the_query_of_a_user_s_own_aggregate_has_another_step() -> None:
    zero = "{ INSERT INTO RETURN VALUES (0.0); }"
    own = f"CREATE AGGREGATE avg(x double) : double {{ INITIALIZE: ITERATE: {zero} }};"
    parts = [rows(5)]
    catalog = bind(
        f"{own}\n{STREAM}CREATE QUERY q AS SELECT avg(v) OVER (ROWS 1 PRECEDING) AS a FROM S"
    ).catalog
    graph = build_graph(catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    schema = graph[graph.streams["S"]].schema
    outcome = program.run({"S": to_table(parts[0], schema, [0] * 5)}, {"S": END})
    assert outcome.tables["q"].column("a").to_pylist() == [0.0] * 5

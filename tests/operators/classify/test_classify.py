"""Classifiers set at a time: the rows of the reference operator, wherever runs begin and state is stored."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows, to_table
from slicemill.errors import SlicemillError
from slicemill.extensions.classify import policies as registry
from slicemill.extensions.classify.definition import POLICIES
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.tasks import Task, split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.storage.checkpoints import read_checkpoint, write_checkpoint
from slicemill.time import END
from slicemill.types import Row, Timed
from slicemill_oracle.operators.classify import ClassifyOperator
from slicemill_oracle.translate import Translator
from support.stored import stored

SCRIPT = """
CREATE STREAM a (k varchar, x double, t timestamp) ORDER BY t;
CREATE STREAM b (k varchar, y decimal(6, 2), z int, t timestamp) ORDER BY t;
CREATE TABLE e (k varchar, x double, y double, z int, label int);
CREATE CLASSIFIER c ON a(x), b(y, z) PARTITION BY k LEARN label FROM e EVERY 10 MICROSECONDS
  WITH (capacity = 3, policy = '{policy}', bins = 4, samples = 5, lags = 1, window = 8);
CREATE QUERY q AS SELECT * FROM c;
"""


def examples() -> list[Row]:
    random = Random(1)
    found: list[Row] = []
    for _ in range(40):
        for key in ("p", "q", None):
            label = random.randrange(3)
            found.append(
                (key, label + random.gauss(0, 1), random.gauss(label, 1), random.randrange(5), label)
            )
    return found


def plan_of(policy: str) -> tuple[TaskPlan, Task, QueryGraph]:
    catalog = bind(SCRIPT.format(policy=policy)).catalog
    graph = build_graph(catalog)
    (task,) = [task for task in split_into_tasks(graph) if task.stateful]
    return TaskPlan(task=task, graph=graph, catalog=catalog, tables={"e": examples()}), task, graph


values = st.none() | st.integers(-3, 8).map(float)
gaps = st.sampled_from([0, 1, 4, 13, 47])
keys = st.sampled_from(["p", "q", "p", "q", "r", None])
arrivals = st.lists(st.tuples(gaps, st.integers(0, 1), keys, values, values), max_size=25)


def inputs(drawn: list[tuple[int, int, str | None, float | None, float | None]]) -> list[tuple[int, Timed]]:
    ts, found = 0, []
    for gap, port, key, one, other in drawn:
        ts += gap
        row: Row = (key, one, ts)
        if port == 1:
            row = (key, None if one is None else Decimal(one), None if other is None else int(other), ts)
        found.append((port, Timed(ts, row)))
    # At equal timestamps the first input comes first.
    return sorted(found, key=lambda pair: (pair[1].ts, pair[0]))


def on_reference(policy: str, tuples: list[tuple[int, Timed]]) -> list[Timed]:
    plan, _, graph = plan_of(policy)
    translator = Translator(graph, plan.catalog, plan.tables)
    operator, found = translator.operator(graph["c"]), []
    for index, (port, timed) in enumerate(tuples):
        found += operator.process(port, timed)
        if index % 7 == 3:
            assert isinstance(operator, ClassifyOperator)
            kept, operator = stored(operator.state()), translator.operator(graph["c"])
            assert isinstance(operator, ClassifyOperator)
            operator.restore(kept)
    return [*found, *operator.finish()]


def in_runs(policy: str, tuples: list[tuple[int, Timed]], edges: list[int], folder: Path) -> list[Timed]:
    plan, _, graph = plan_of(policy)
    program, out = TaskProgram(plan), []
    cuts = [0, *sorted(edge for edge in edges if edge < len(tuples)), len(tuples)]
    for number, (first, last) in enumerate(pairwise(cuts)):
        part = tuples[first:last]
        tables = {}
        for port, name in enumerate("ab"):
            mine = [timed for at, timed in part if at == port]
            tables[name] = to_table(mine, graph[name].schema, [0] * len(mine))
        complete = END if number == len(cuts) - 2 else tuples[last][1].ts if last < len(tuples) else 0
        outcome = program.run(tables, dict.fromkeys("ab", complete))
        assert not outcome.errors
        out += timed_rows(outcome.tables["c"], graph["c"].schema)
        program = TaskProgram(plan, read_checkpoint(folder, write_checkpoint(folder, program.states)))
    return out


@settings(max_examples=30)
@given(arrivals, st.lists(st.integers(0, 25), max_size=3), st.sampled_from(POLICIES))
def test_rows_are_those_of_the_reference(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: list[tuple[int, int, str | None, float | None, float | None]],
    edges: list[int],
    policy: str,
) -> None:
    folder = tmp_path_factory.mktemp("state")
    tuples = inputs(drawn)
    found = in_runs(policy, tuples, edges, folder)
    assert found == on_reference(policy, tuples)
    for timed in found:
        key, end, label, risk, observed = timed.row
        assert key in ("p", "q") and end == timed.ts and label in (0, 1, 2)
        assert isinstance(risk, float) and 0 <= risk <= 1
        assert observed in (0, 1, 2, 3)


def test_results_are_due_at_the_end_of_the_time_unit() -> None:
    plan, _, graph = plan_of("bff")
    program = TaskProgram(plan)
    tables = {
        "a": to_table([Timed(17, ("p", 1.0, 17))], graph["a"].schema, [0]),
        "b": to_table([], graph["b"].schema, []),
    }
    assert program.run(tables, {"a": 18, "b": 30}).due == ({"a": 20, "b": 20},)
    nothing = {name: to_table([], graph[name].schema, []) for name in "ab"}
    outcome = program.run(nothing, {"a": 20, "b": 30})
    assert [timed.ts for timed in timed_rows(outcome.tables["c"], graph["c"].schema)] == [20, 20]
    assert outcome.due == ({"a": 30, "b": 30},)
    # When the streams have ended, nothing comes out of time alone.
    assert program.run(nothing, {"a": END, "b": END}).due == ()


def test_a_table_without_examples_is_said() -> None:
    plan, _, graph = plan_of("bff")
    with pytest.raises(SlicemillError, match="e has no row that c could learn from"):
        Translator(graph, plan.catalog, {"e": [("p", 1.0, 1.0, 1, None)]}).operator(graph["c"])


def test_esl_knows_the_policies_there_are() -> None:
    assert set(POLICIES) == set(registry.POLICIES)

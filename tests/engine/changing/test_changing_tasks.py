"""Aggregates of one stream and key are one task; each gives what it gives alone, whoever comes and goes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef
from slicemill.columns import keys
from slicemill.columns.rows import timed_rows, to_table
from slicemill.plan.partitioning import Exchange
from slicemill.plan.planner import Planner
from slicemill.plan.state_reuse import names_of_state, node_changes, without_outputs
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import INT, Timed
from support.tasks import exchanges_of, run_subtasks

DECLARED = """
CREATE STREAM s (k int, v bigint, name varchar) ORDER BY current_time;
CREATE MODEL centre(x REAL) AS mean(x);
CREATE AGGREGATE seen(x bigint) : bigint
{ TABLE t(n bigint);
  INITIALIZE : { INSERT INTO t VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE : { UPDATE t SET n = n + x; INSERT INTO RETURN SELECT n FROM t; } };
CREATE WINDOW AGGREGATE seen(x bigint) : bigint
{ TABLE t(n bigint); TABLE inwindow(x bigint);
  INITIALIZE : { INSERT INTO t VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE : { UPDATE t SET n = n + x; INSERT INTO RETURN SELECT n FROM t; }
  EXPIRE : { UPDATE t SET n = n - oldest().x; } };
"""
SELECTS = {
    "latest": "SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s",
    "timed": "SELECT k, max(v) OVER (PARTITION BY k RANGE 3 SECONDS PRECEDING) AS m FROM s WHERE v > 2",
    "mine": "SELECT k, seen(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS m FROM s",
    "model": "SELECT k, centre(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS m FROM s",
    "pane": "SELECT k, avg(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
    "grouped": "SELECT k, seen(v) AS m FROM s GROUP BY k",
    "arrival": "SELECT k, count(*) AS m FROM s [RANGE 3 SECONDS] GROUP BY k",
    "renamed": """SELECT x, min(y) OVER (PARTITION BY x ROWS 2 PRECEDING) AS m
    FROM (SELECT k AS x, v AS y FROM s) AS r""",
    "fails": "SELECT k, sum(10 / (v - 7)) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s",
}
SCHEMA = bind(DECLARED).catalog.relation("s").schema  # type: ignore[union-attr]
SECOND = 1_000_000


@dataclass
class Home:
    """The state of one task, by subtask and node, as it is kept between plans."""

    subtasks: int
    states: list[dict[str, object]]
    stateful: tuple[str, ...] = ()
    outputs: frozenset[str] = frozenset()

    def run(
        self, planner: Planner, live: Sequence[str], table: pa.Table, until: int
    ) -> tuple[dict[str, list[Timed]], dict[str, str]]:
        """One run with these queries; those that were not there before start now."""
        text = "".join(f"CREATE QUERY {name} AS {SELECTS[name]};" for name in live)
        catalog = bind(DECLARED + text).catalog
        plan = planner.plan(catalog)
        (task,) = plan.tasks
        assert task.id == "aggregates of s by k"
        exchanges = exchanges_of(task, plan.graph, self.subtasks)
        assert self.subtasks == 1 or exchanges == {"s": Exchange((self.subtasks,), ((ColumnRef("k", INT),),))}
        changes = node_changes(self.stateful, task)
        assert {*changes.kept, *changes.new} == set(task.stateful_nodes)
        roots = {log: root for root, log in task.outputs}
        new = [root for log, root in roots.items() if log not in self.outputs]
        newcomers = {name: (None, None) for root in new for name in names_of_state(plan.graph, task, root)}
        rows: dict[str, list[Timed]] = {log: [] for log in roots}
        failed: dict[str, str] = {}
        made = TaskPlan(
            task=task, graph=plan.graph, catalog=catalog, tables={}, exchanges=exchanges, newcomers=newcomers
        )
        programs = [TaskProgram(made, states) for states in self.states]
        for outcomes in run_subtasks(programs, {"s": table}, {"s": until}):
            for outcome in outcomes:
                failed |= outcome.errors
                for log, out in outcome.tables.items():
                    rows[log] += timed_rows(out, plan.graph[log].schema)
        self.states = [program.states for program in programs]
        self.stateful, self.outputs = task.stateful_nodes, frozenset(roots)
        return rows, failed


def tuples(chance: random.Random, begin: int, with_seven: bool) -> list[Timed]:
    times = sorted(begin + chance.randrange(5 * SECOND) for _ in range(12))
    values = [v for v in range(10) if with_seven or v != 7]
    return [Timed(ts, (chance.randrange(4), chance.choice(values), chance.choice("ab"))) for ts in times]


def shown(rows: list[Timed]) -> list[tuple[int, str]]:
    return sorted((timed.ts, repr(timed.row)) for timed in rows)


@pytest.mark.parametrize("subtasks", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_queries_that_come_and_go_change_nothing_for_the_others(seed: int, subtasks: int) -> None:
    chance = random.Random(seed)
    names = [name for name in SELECTS if name != "fails"]
    batches = [tuples(chance, 5 * SECOND * number, with_seven=False) for number in range(5)]
    untils = [5 * SECOND * (number + 1) for number in range(4)] + [END]
    lives = [sorted(chance.sample(names, chance.randint(1, len(names)))) for _ in batches]
    shared, planner = Home(subtasks, [{} for _ in range(subtasks)]), Planner()
    alone: dict[str, Home] = {}
    for live, batch, until in zip(lives, batches, untils, strict=True):
        table = to_table(batch, SCHEMA, [0] * len(batch))
        alone = {name: alone.get(name) or Home(1, [{}]) for name in live}
        rows, failed = shared.run(planner, chance.sample(live, len(live)), table, until)
        assert not failed
        for name in live:
            expected, _ = alone[name].run(Planner(), [name], table, until)
            assert shown(rows[name]) == shown(expected[name]), name


def test_a_query_that_comes_again_with_the_same_words_starts_anew() -> None:
    home, planner = Home(1, [{}]), Planner()
    table = to_table([Timed(0, (1, 5, "a"))], SCHEMA, [0])
    home.run(planner, ["grouped", "latest"], table, 0)
    home.outputs -= {"grouped"}  # it is dropped and registered again before anything runs
    rows, _ = home.run(planner, ["grouped", "latest"], table, 0)
    assert [timed.row for timed in rows["grouped"]] == [(1, 5)]
    assert [timed.row for timed in rows["latest"]] == [(1, 10)]


def test_a_node_that_fails_stops_its_own_query_alone() -> None:
    chance = random.Random(7)
    home, other = Home(2, [{}, {}]), Home(2, [{}, {}])
    batch = [*tuples(chance, 0, with_seven=False), Timed(6 * SECOND, (1, 7, "a"))]
    table = to_table(batch, SCHEMA, [0] * len(batch))
    rows, failed = home.run(Planner(), ["latest", "fails", "pane", "grouped"], table, END)
    expected, none = other.run(Planner(), ["latest", "pane", "grouped"], table, END)
    assert list(failed) == ["fails"] and not none
    assert all(shown(rows[name]) == shown(expected[name]) for name in expected)


def test_a_task_without_those_that_are_joining_has_only_the_nodes_of_the_others() -> None:
    text = "".join(f"CREATE QUERY {name} AS {select};" for name, select in SELECTS.items())
    plan = Planner().plan(bind(DECLARED + text).catalog)
    (task,) = plan.tasks
    reduced, graph = without_outputs(task, plan.graph, SELECTS.keys() - {"grouped", "pane"})
    assert sorted(graph[node].owner for node in reduced.stateful_nodes) == ["", "grouped"]
    assert set(reduced.stateful_nodes) < set(task.stateful_nodes)
    changes = node_changes(reduced.stateful_nodes, task)
    assert set(changes.kept) == set(reduced.stateful_nodes) and not changes.gone
    assert node_changes(task.stateful_nodes, reduced).gone == changes.new


def test_keys_of_one_table_are_found_once_in_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    distinct = keys._distinct

    def noted(columns: Sequence[keys.Column], rows: int) -> keys.DistinctKeys:
        found.append(rows)
        return distinct(columns, rows)

    monkeypatch.setattr(keys, "_distinct", noted)
    live = ["latest", "mine", "grouped", "renamed"]
    table = to_table([Timed(n, (n % 3, n, "a")) for n in range(9)], SCHEMA, [0] * 9)
    home, planner = Home(1, [{}]), Planner()
    home.run(planner, live, table, 0)
    assert found == [9]
    home.run(planner, live, table, 0)
    assert found == [9, 9]


def test_tasks_say_what_they_have_in_common() -> None:
    more = """CREATE QUERY a AS SELECT v FROM s WHERE v > 1; CREATE QUERY b AS SELECT k FROM s;
    CREATE QUERY whole AS SELECT avg(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS];
    CREATE QUERY mixed AS SELECT sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m,
      sum(v) OVER (PARTITION BY name ROWS 2 PRECEDING) AS n FROM s;
    CREATE QUERY named AS SELECT name, seen(v) AS m FROM s GROUP BY name;
    CREATE QUERY nested AS SELECT k, max(m) AS m
      FROM (SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s) AS r
      [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k;"""
    text = "".join(f"CREATE QUERY {name} AS {select};" for name, select in SELECTS.items())
    plan = Planner().plan(bind(DECLARED + text + more).catalog)
    found: dict[str, tuple[list[str], int]] = {
        task.id: (sorted(log for _, log in task.outputs), len(exchanges_of(task, plan.graph, 8)))
        for task in plan.tasks
    }
    assert found == {
        "aggregates of s by k": (sorted(SELECTS), 1),
        "select from s": (["a", "b"], 0),
        "aggregates of s": (["mixed", "whole"], 0),
        "aggregates of s by name": (["named"], 1),
        "nested": (["nested"], 0),
    }

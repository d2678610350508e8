"""What a home's state holds, slice by slice and query by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from slicemill.binder import bind
from slicemill.columns.rows import to_table
from slicemill.errors import SlicemillError
from slicemill.explain.text import explain_text
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.runtime.state_view import slices_of, state_tables, with_measures
from slicemill.storage.changes import Change
from slicemill.storage.checkpoints import write_checkpoint
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.testing import Clock, inline_pool
from slicemill.types import Timed
from support.engine import fed_mill, rows_as_table
from support.tasks import exchanges_of, spread

SCRIPT = """
CREATE STREAM A (k int) ORDER BY current_time; CREATE STREAM B (k int) ORDER BY current_time;
CREATE QUERY short AS SELECT A.k FROM A [RANGE 2 SECONDS], B [RANGE 2 SECONDS] WHERE A.k = B.k;
CREATE QUERY long AS SELECT A.k FROM A [RANGE 9 SECONDS], B [RANGE 4 SECONDS] WHERE A.k = B.k AND A.k > 1;
"""
SECOND = 1_000_000


def test_slices_and_queries_are_shown_with_rows_and_ages(tmp_path: Path) -> None:
    catalog = bind(SCRIPT).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    rows = {
        "A": [Timed(1 * SECOND, (1,)), Timed(2 * SECOND, (2,)), Timed(9 * SECOND, (3,))],
        "B": [Timed(2 * SECOND, (2,))],
    }
    given = {name: to_table(tuples, graph[name].schema, [0] * len(tuples)) for name, tuples in rows.items()}
    program.run(given, {"A": 9 * SECOND, "B": int(2.5 * SECOND)})
    _home_with(tmp_path, task.id, [program.states])

    left, waiting, right = sorted(slices_of(tmp_path), key=lambda held: held.part)
    assert (left.part, left.rows, left.earliest_us, left.latest_us) == ("input 0", 2, SECOND, 2 * SECOND)
    assert left.wanted == {"short": 2, "long": 1} and left.bytes > 0
    assert (waiting.part, waiting.rows, waiting.bytes) == ("input 0, waiting", 1, 0)
    assert (right.part, right.wanted) == ("input 1", {"short": 1, "long": 1})

    console = Console(width=120)
    with console.capture() as shown:
        for table in state_tables(tmp_path):
            console.print(table)
    assert "joins of A and B on k = k" in shown.get()
    assert [line.split() for line in shown.get().splitlines() if line.startswith(("long", "short"))] == [
        ["long", "2", "2", "8.0", "s"],
        ["short", "3", "2", "8.0", "s"],
    ]


def test_a_folder_that_is_no_home_is_told(tmp_path: Path) -> None:
    with pytest.raises(SlicemillError, match="there is no home in"):
        list(slices_of(tmp_path))


def test_explain_counts_with_what_was_measured(tmp_path: Path) -> None:
    catalog = bind(SCRIPT).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    _home_with(tmp_path / "empty", task.id, [])
    assert "assuming" in explain_text(with_measures(graph, tmp_path / "empty"))
    states = []
    plan = TaskPlan(
        task=task, graph=graph, catalog=catalog, tables={}, exchanges=exchanges_of(task, graph, 2)
    )
    for subtask in range(2):
        program = TaskProgram(plan)
        times = range(0, 20 * SECOND, SECOND // 100)
        rows = [Timed(ts, (number % 50,)) for number, ts in enumerate(times)]
        given = {name: to_table(rows, graph[name].schema, [0] * len(rows)) for name in "AB"}
        program.run(
            {name: spread(table, plan, name)[subtask] for name, table in given.items()},
            dict.fromkeys("AB", 20 * SECOND),
        )
        states.append(program.states)
    _home_with(tmp_path / "home", task.id, states)
    measured = with_measures(graph, tmp_path / "home")
    assert measured == graph, "what was measured changes no plan"
    text = explain_text(measured)
    assert "measured" in text and "assuming" not in text
    assert "100 and 100 tuples/s" in " ".join(text.replace("\xa0", " ").split())


def test_a_checkpoint_that_is_replaced_while_it_is_looked_at_is_looked_at_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = bind(SCRIPT).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (task,) = split_into_tasks(graph)
    states = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={})).states
    _home_with(tmp_path, task.id, [states])
    opened = HomeReader.__init__

    def replaced(self: HomeReader, folder: Path, *rest: Any) -> None:
        opened(self, folder, *rest)
        _home_with(tmp_path, task.id, [states])

    monkeypatch.setattr(HomeReader, "__init__", replaced)
    assert slices_of(tmp_path) == []


def test_a_query_tells_what_it_keeps_after_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    clock = Clock(3 * SECOND)
    with fed_mill(tmp_path, clock, inline_pool(), subtasks=2) as mill:
        mill.execute(SCRIPT)
        mill.open()
        for stream, keys in (("A", [1, 2, 3]), ("B", [2])):
            mill.feed(stream, rows_as_table(mill, stream, [(key,) for key in keys]))
        mill.dispatcher.admit_handed()
        clock.now += SECOND
        mill.dispatcher.run_all()
        held = mill.queries["long"].state_slices()
        assert sum(part.wanted["long"] for part in held) == 3
        assert {part.subtask for part in mill.queries["short"].state_slices()} <= {0, 1}
        assert held == [part for part in slices_of(tmp_path) if "long" in part.wanted]


def _home_with(folder: Path, task: str, states: Sequence[Mapping[str, object]]) -> None:
    """A home where a unit's last checkpoint has these states, subtask by subtask."""
    home = Home(folder)
    home.open()
    subtasks = [write_checkpoint(home.checkpoint_folder(task), subtask) for subtask in states]
    home.commit(Change(tasks={task: {"checkpoint": {"files": subtasks}}}))
    home.free()
    home.close()

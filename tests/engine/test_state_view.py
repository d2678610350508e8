"""What a home's state holds, slice by slice and query by query."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from slicemill.engine.program import UnitPlan, UnitProgram
from slicemill.engine.rows import to_table
from slicemill.engine.state_view import slices_of, state_tables, with_measures
from slicemill.engine.task import store_state
from slicemill.errors import SlicemillError
from slicemill.esl import bind
from slicemill.execution.operator import Timed
from slicemill.plan.build import build_graph
from slicemill.plan.explain import explain_text
from slicemill.plan.graph import QueryGraph
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
from slicemill.storage.home import Home
from slicemill.storage.state import SliceInfo, UnitVersion

SCRIPT = """
CREATE STREAM A (k int) ORDER BY current_time; CREATE STREAM B (k int) ORDER BY current_time;
CREATE QUERY short AS SELECT A.k FROM A [RANGE 2 SECONDS], B [RANGE 2 SECONDS] WHERE A.k = B.k;
CREATE QUERY long AS SELECT A.k FROM A [RANGE 9 SECONDS], B [RANGE 4 SECONDS] WHERE A.k = B.k AND A.k > 1;
"""
SECOND = 1_000_000


def test_slices_and_queries_are_shown_with_rows_and_ages(tmp_path: Path) -> None:
    catalog = bind(SCRIPT).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (unit,) = cut(graph)
    program = UnitProgram(UnitPlan(unit, graph, catalog, {}), 0)
    rows = {
        "A": [Timed(1 * SECOND, (1,)), Timed(2 * SECOND, (2,)), Timed(9 * SECOND, (3,))],
        "B": [Timed(2 * SECOND, (2,))],
    }
    given = {name: to_table(tuples, graph[name].schema, [0] * len(tuples)) for name, tuples in rows.items()}
    program.run(given, {"A": 9 * SECOND, "B": int(2.5 * SECOND)})
    store = Home(tmp_path).unit_store(unit.id)
    chunks = store_state(store.folder, program.states)
    store.commit(0, UnitVersion({}, tuple(SliceInfo("states", 0, chunk) for chunk in chunks)))

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
    with pytest.raises(SlicemillError, match="no home of a mill"):
        list(slices_of(tmp_path))


def test_explain_counts_with_what_was_measured(tmp_path: Path) -> None:
    catalog = bind(SCRIPT).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (unit,) = cut(graph)
    assert "assuming" in explain_text(with_measures(graph, _home_with(tmp_path / "empty", graph, [])))
    chunks = []
    for bucket in range(2):
        program = UnitProgram(UnitPlan(unit, graph, catalog, {}, 2), bucket)
        times = range(0, 20 * SECOND, SECOND // 100)
        rows = [Timed(ts, (number % 50,)) for number, ts in enumerate(times)]
        given = {name: to_table(rows, graph[name].schema, [0] * len(rows)) for name in "AB"}
        program.run(given, dict.fromkeys("AB", 20 * SECOND))
        folder = Home(tmp_path).unit_store(unit.id).folder
        chunks += [SliceInfo("states", bucket, chunk) for chunk in store_state(folder, program.states)]
    measured = with_measures(graph, _home_with(tmp_path, graph, chunks))
    assert measured == graph, "what was measured changes no plan"
    text = explain_text(measured)
    assert "measured" in text and "assuming" not in text
    assert "100 and 100 tuples/s" in " ".join(text.replace("\xa0", " ").split())


def _home_with(home: Path, graph: QueryGraph, chunks: list[SliceInfo]) -> Path:
    (unit,) = cut(graph)
    Home(home).unit_store(unit.id).commit(0, UnitVersion({}, tuple(chunks)))
    return home

"""Models with GROUP BY over windows of FROM: the values of their definitions, computed together."""

from __future__ import annotations

import math

import numpy as np
import pytest

from slicemill.aggregates.columns import Windows
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.columns.rows import timed_rows, to_table
from slicemill.extensions.models.model import expression
from slicemill.operators import call_values
from slicemill.operators.call_values import calls_together
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram
from slicemill.time import END
from slicemill.types import Timed

SECOND = 1_000_000
STREAM = "CREATE STREAM s(k int, x real, y real, ts timestamp) ORDER BY ts;\n"
QUERY = """CREATE MODEL spread(x REAL) AS variance(x);
CREATE QUERY q AS SELECT k, slope(x, y) AS l, spread(x) AS v, count(y) AS c, window_end() AS e
FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k;"""
ROWS = [
    (n % 2, None if n % 7 == 3 else n * 1.5 % 4, None if n % 5 == 2 else float(n * n % 11), n * SECOND)
    for n in range(24)
]


def catalog() -> Catalog:
    return bind(STREAM + QUERY).catalog


def found() -> dict[tuple[int, int], tuple[object, ...]]:
    """By window and group."""
    known = catalog()
    graph = share(optimize(build_graph(known)), known)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=known, tables={}))
    rows: dict[tuple[int, int], tuple[object, ...]] = {}
    for first in range(0, len(ROWS), 9):
        tuples = [Timed(row[3], row) for row in ROWS[first : first + 9]]
        until = END if first + 9 >= len(ROWS) else tuples[-1].ts
        table = to_table(tuples, known.relation("s").schema, [0] * len(tuples))
        outcome = program.run({"s": table}, {"s": until})
        assert not outcome.errors
        for timed in timed_rows(outcome.tables["q"], graph["q"].schema):
            rows[timed.ts, int(str(timed.row[0]))] = timed.row[1:4]
    return rows


@pytest.mark.parametrize("at_once", [1, 7, 2**20])
def test_each_window_has_the_values_of_the_definitions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_values, "_AT_ONCE", at_once)
    rows = found()
    assert len(rows) == 28
    for (end, key), (slope, spread, count) in rows.items():
        window = [{"x": x, "y": y} for k, x, y, ts in ROWS if k == key and end - 6 * SECOND <= ts < end]
        for text, value in (("slope(x, y)", slope), ("variance(x)", spread)):
            expected = expression(text).value(window)
            assert expected == value or math.isclose(float(expected), float(value), rel_tol=1e-12), (end, key)
        assert count == sum(row["y"] is not None for row in window)


def test_pieces_have_all_rows_of_their_windows() -> None:
    windows = Windows(np.array([0, 1, 1, 4]), np.array([3, 4, 6, 6]))
    pieces = list(call_values._pieces(windows))
    assert [indices.tolist() for _, indices, _ in pieces] == [[0, 1, 2, 1, 2, 3, 1, 2, 3, 4, 5, 4, 5]]
    assert pieces[0][2].tolist() == [0] * 3 + [1] * 3 + [2] * 5 + [3] * 2


def test_models_of_one_query_are_one_call() -> None:
    graph = build_graph(catalog())
    calls = next(node.operator.calls for node in graph if hasattr(node.operator, "calls"))
    models = calls_together(calls, catalog())
    assert models is not None and len(models.asked) == 2
    assert len(models.arguments) == 2

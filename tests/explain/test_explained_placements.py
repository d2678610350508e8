"""EXPLAIN reports the placement of each task, the reason, and the costs of alternatives."""

from __future__ import annotations

import json

import pytest

from slicemill.binder import bind
from slicemill.explain.json import explain_json
from slicemill.explain.placements import place_tasks
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize, share

STREAMS = "".join(
    f"CREATE STREAM {name} (x INT, y INT, z INT, ts TIMESTAMP) ORDER BY ts;\n" for name in "abc"
)
WINDOWS = ", ".join(f"{name} [RANGE 10 SECONDS]" for name in "abc")
TWO_KEYS = f"CREATE QUERY q AS SELECT a.z FROM {WINDOWS} WHERE a.x = b.x AND b.y = c.y;"
SUMS = "CREATE QUERY sums AS SELECT sum(z) OVER (ROWS 3 PRECEDING) AS s FROM a;"


def planned(script: str) -> QueryGraph:
    catalog = bind(STREAMS + script).catalog
    return share(optimize(build_graph(catalog)), catalog)


def words(text: str) -> str:
    return " ".join(text.split())


def test_text_reports_the_placement_of_each_log_and_the_costs_of_alternatives() -> None:
    graph = planned(TWO_KEYS + SUMS)
    text = words(explain_text(graph, tasks=place_tasks(graph, 16)))
    assert (
        "placement hypercube, 4 × 4 subtasks: a by x and to all subtasks, b by x and by y, "
        "c to all subtasks and by y" in text
    )
    assert "why joined rows have equal keys, but some inputs lack some keys" in text
    assert "assumed 100,000 rows/s of a, 100,000 rows/s of b, 100,000 rows/s of c" in text
    assert "alternative one subtask:" in text and "alternative cube, " in text
    assert "placement one subtask why its state has no key in common with all its inputs" in text


@pytest.mark.parametrize("width", [40, 60, 100])
def test_lines_fit_the_given_width(width: int) -> None:
    graph = planned(TWO_KEYS)
    text = explain_text(graph, width, place_tasks(graph, 16))
    assert max(len(line) for line in text[text.index("\nTask ") :].splitlines()) <= width


def test_json_has_every_task_with_its_candidates_cheapest_first() -> None:
    graph = planned(TWO_KEYS + SUMS)
    tasks = {
        task["outputs"][0]: task
        for task in json.loads(explain_json(graph, tasks=place_tasks(graph, 16)))["tasks"]
    }
    assert tasks.keys() == {"q", "sums"}
    joined = tasks["q"]
    assert joined["placement"] == {
        "kind": "hypercube",
        "shape": [4, 4],
        "by": {"a": ["x", "every"], "b": ["x", "y"], "c": ["every", "y"]},
    }
    assert not joined["measured"] and joined["subtasks"] == 16
    found = {one["kind"]: one for one in joined["candidates"]}
    assert next(iter(found)) == "hypercube" and found.keys() == {"hypercube", "one", "cube"}
    assert found["one"]["cpu_s"] == found["one"]["slowest_s"]
    # A row of a or c is in four subtasks, a row of b in one.
    assert found["hypercube"]["rows_read"] == pytest.approx(found["one"]["rows_read"] * 3)
    assert found["hypercube"]["slowest_s"] < found["one"]["slowest_s"] / 4


def test_a_running_task_has_the_placement_stored_in_its_home_directory() -> None:
    graph = planned(TWO_KEYS)
    (chosen,) = place_tasks(graph, 16)
    dearer = next(one for one in chosen.found if one.placement.shape == (2, 8))
    (kept,) = place_tasks(graph, 4, {chosen.task.id: dearer.placement.plain()})
    assert kept.placement == dearer.placement and kept.subtasks == 16
    (one,) = place_tasks(graph, 1)
    assert one.why == "the task may use only one subtask"

"""Decisions about a new placement of a running task: not for little load and not for a small gain."""

from __future__ import annotations

import pytest

from plan.test_placement import PAIR, THETA, planned
from slicemill.plan.join_inputs import join_inputs_of
from slicemill.plan.placement import ONE_SUBTASK, Placement, PlacementKind, choose_placement, price_of
from slicemill.plan.placement_cost import cost_of
from slicemill.plan.rescale_decision import Hysteresis, TaskWork, calibrate_statistics, cheaper_placement

BUSY = TaskWork(1.5, {})
RATES = {"a": 1000.0, "b": 1000.0}


@pytest.mark.parametrize("query", [PAIR, THETA])
def test_the_cost_model_is_calibrated_to_the_measured_work(query: str) -> None:
    task, graph = planned(query)
    joined = join_inputs_of(task, graph)
    for cpu_s in (0.3, 1.5):
        known = calibrate_statistics(task, graph, ONE_SUBTASK, RATES, TaskWork(cpu_s, {}))
        assert cost_of({}, task.inputs, joined, known).cpu_s == pytest.approx(cpu_s)
        assert known.rates == RATES


def test_measured_comparisons_calibrate_the_number_of_matches() -> None:
    task, graph = planned(PAIR)
    joined = join_inputs_of(task, graph)
    assert joined is not None
    (join,) = {one.join for one in joined.inputs}
    # A thousand rows a second meet ten thousand stored rows each, on both sides.
    known = calibrate_statistics(task, graph, ONE_SUBTASK, RATES, TaskWork(1.0, {join: 20_000.0}))
    assert known.matching == {join: pytest.approx(0.001)}


def test_a_busy_subtask_is_split_and_the_new_placement_is_stable() -> None:
    task, graph = planned(PAIR)
    known = calibrate_statistics(task, graph, ONE_SUBTASK, RATES, BUSY)
    found = cheaper_placement(task, graph, ONE_SUBTASK, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.KEY and found.subtasks in (4, 8)
    # The chosen placement is not replaced for a small gain.
    again = calibrate_statistics(task, graph, found, RATES, BUSY)
    assert cheaper_placement(task, graph, found, 4, again, lambda _: True) is None


def test_a_forbidden_placement_is_not_chosen() -> None:
    task, graph = planned(THETA)
    known = calibrate_statistics(task, graph, ONE_SUBTASK, RATES, BUSY)
    found = cheaper_placement(task, graph, ONE_SUBTASK, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.TIME
    assert cheaper_placement(task, graph, ONE_SUBTASK, 4, known, lambda to: to.subtasks == 1) is None


def test_a_wrong_placement_is_replaced() -> None:
    """Placement by time costs as much as placement by key, multiplied by the number of subtasks."""
    task, graph = planned(PAIR)
    by_time = choose_placement(task, graph, 4, kind=PlacementKind.TIME)
    known = calibrate_statistics(task, graph, by_time, RATES, TaskWork(3.0, {}))
    found = cheaper_placement(task, graph, by_time, 4, known, lambda _: True)
    assert found is not None and found.kind is PlacementKind.KEY
    assert price_of(found, task, graph, known, 4) < price_of(by_time, task, graph, known, 4)


def test_a_new_placement_needs_several_equal_decisions_and_a_pause_afterwards() -> None:
    task, graph = planned(PAIR)
    four, eight = (choose_placement(task, graph, subtasks, kind=PlacementKind.KEY) for subtasks in (4, 8))
    kept = Hysteresis()
    looks: list[Placement | None] = [four, eight, four, four, None, four, four, four]
    assert [kept.decide(look) for look in looks] == [None] * 7 + [four]
    assert [kept.decide(eight) for _ in range(12)] == [None] * 11 + [eight]

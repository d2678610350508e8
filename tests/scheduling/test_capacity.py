"""Costs of tasks, alone and in one job, and utilisation of cores by a load."""

from __future__ import annotations

import pytest

from slicemill.errors import SlicemillError
from slicemill.scheduling.capacity import Costs, Output, TaskCost, costs_from_json

FILTER = TaskCost("filter", ("bid",), (Output("big", 0.5, is_query=False),), False, 0.01, 0.02, 1e-3)
COUNT = TaskCost("count", ("big",), (Output("counts", 0.1),), True, 0.01, 0.02, 2e-3)
COSTS = Costs(0.1, (FILTER, COUNT))


def test_the_cost_of_a_single_task_is_its_fixed_parts_and_its_rows() -> None:
    assert COSTS.alone(FILTER, 2).of(100) == pytest.approx(0.1 + 0.01 + 0.02 + 0.1)
    assert COSTS.alone(COUNT, 2).of(100) == pytest.approx(
        0.1 + 0.01 + 0.02 + 0.1
    )  # half of the rows on each core


def test_a_job_of_one_task_costs_as_much_as_the_task_alone() -> None:
    for task in COSTS.tasks:
        assert COSTS.together_s([(task, 100.0)], 2) == pytest.approx(COSTS.alone(task, 2).of(100))


def test_the_next_task_is_assigned_to_the_first_free_core() -> None:
    tasks = [(FILTER, 280.0), (FILTER, 80.0), (FILTER, 80.0)]  # 0.3, 0.1 and 0.1 s
    assert COSTS.together_s(tasks, 2) == pytest.approx(0.1 + 3 * 0.01 + 0.3)
    assert COSTS.together_s(tasks, 1) == pytest.approx(0.1 + 3 * 0.01 + 0.5)


def test_rates_propagate_through_derived_streams() -> None:
    assert COSTS.rates({"bid": 100.0}) == {"bid": 100.0, "big": 50.0, "counts": 5.0}
    assert COSTS.streams() == ["bid"]
    assert [output.log for _, output in COSTS.queries()] == ["counts"]


def test_utilisation_counts_the_work_for_all_rows_on_all_cores() -> None:
    # Each row of bid costs 1 ms in filter, and half of 2 ms in count.
    assert COSTS.utilisation({"bid": 500.0}, 1) == pytest.approx(1.0)
    assert COSTS.utilisation({"bid": 500.0}, 2) == pytest.approx(0.5)


def test_a_task_that_cannot_be_split_uses_at_most_one_core() -> None:
    assert Costs(0.1, (FILTER,)).utilisation({"bid": 500.0}, 8) == pytest.approx(0.5)


def test_the_ideal_time_of_a_result_sums_all_tasks_on_its_way() -> None:
    assert COSTS.ideal_s("counts", 1) == pytest.approx(0.13 + 0.001 + 0.13 + 0.002)


def test_costs_survive_a_round_trip_through_a_file() -> None:
    assert costs_from_json(COSTS.to_json(), "costs.json") == COSTS


@pytest.mark.parametrize("text", ["", "[]", '{"job_s": 1}', '{"job_s": 1, "tasks": [{"id": "a"}]}', "{}"])
def test_a_file_without_measured_costs_is_reported(text: str) -> None:
    with pytest.raises(SlicemillError, match=r"costs\.json has no measured costs"):
        costs_from_json(text, "costs.json")

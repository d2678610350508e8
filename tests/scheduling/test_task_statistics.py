"""Statistics measured from the runs of a task."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from slicemill.metrics.run_record import RunRecord
from slicemill.scheduling.statistics import TaskStatistics


def run(rows: Mapping[str, int], seconds: float, written: int = 0) -> RunRecord:
    return RunRecord(task="u", read=rows, written={"q": written}, emitted={"node": written}, seconds=seconds)


def test_cost_is_fitted_to_the_duration_of_runs() -> None:
    statistics = TaskStatistics(runs=1)
    for rows in (100, 300):
        statistics.add(run({"s": rows}, 0.5 + 0.01 * rows))
    assert statistics.cost.overhead == pytest.approx(0.5)
    assert statistics.cost.per_row == pytest.approx(0.01)


def test_cost_and_selectivity_follow_all_runs_except_the_first() -> None:
    statistics = TaskStatistics()
    statistics.add(run({"s": 100}, 9.0, 50))
    assert statistics.cost.overhead == TaskStatistics().cost.overhead
    assert statistics.selectivity("q") == pytest.approx(51 / 101)
    for rows in (100, 300, 200, 400):
        statistics.add(run({"s": rows}, 0.5 + 0.01 * rows, rows // 2))
    assert statistics.cost.overhead == pytest.approx(0.5)
    assert statistics.cost.per_row == pytest.approx(0.01)
    assert (statistics.runs, statistics.rows_in, statistics.rows_out) == (5, 1100, 550)
    assert statistics.rows_by_node == {"node": 550}


def test_a_query_without_results_so_far_has_no_selectivity_of_zero() -> None:
    statistics = TaskStatistics()
    assert statistics.selectivity("q") == 1
    statistics.add(run({"s": 0}, 0.1))
    assert statistics.selectivity("q") == 1
    statistics.add(run({"s": 99}, 0.1))
    assert statistics.selectivity("q") == pytest.approx(0.01)


def test_restored_statistics_continue_like_the_original() -> None:
    first, second = TaskStatistics(), TaskStatistics()
    first.runs = second.runs = 1
    for rows in (50, 150, 250):
        first.add(run({"s": rows}, 0.1 + 0.001 * rows, 10))
    second.restore(json.loads(json.dumps(first.plain())))
    for statistics in (first, second):
        statistics.add(run({"s": 180}, 0.3, 90))
    assert second.plain() == first.plain()
    assert TaskStatistics().plain() == _restored({}).plain()


def _restored(kept: dict[str, object]) -> TaskStatistics:
    statistics = TaskStatistics()
    statistics.restore(kept)
    return statistics


def test_both_inputs_of_a_join_predict_the_same_rate_of_results() -> None:
    """G11 by measurement: rates of 2 and 5 a second, 4 results a second; S is 1.0 and 0.4 (P23)."""
    statistics = TaskStatistics()
    for _ in range(3):
        statistics.add(run({"l": 200, "r": 500}, 0.1, 400))
    selectivity = 400 / 700
    assert statistics.selectivity("q") == pytest.approx(selectivity, rel=0.01)
    assert selectivity * statistics.worth("l") == pytest.approx(1.0)
    assert selectivity * statistics.worth("r") == pytest.approx(0.4)
    assert TaskStatistics().worth("l") == 1

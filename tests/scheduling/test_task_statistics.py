"""Statistics measured from the runs of a task."""

from __future__ import annotations

import json

import pytest

from slicemill.runtime.messages import RunDone
from slicemill.scheduling.statistics import TaskStatistics
from slicemill.storage.changes import Appended
from slicemill.storage.segments import Extent


def result(seconds: float, rows: int = 0, subtask: int = 0) -> RunDone:
    written = {"q": Appended([Extent("w-0.arrows", 0, 1, rows)], None, None, 0)} if rows else {}
    return RunDone(
        task="u",
        subtask=subtask,
        run=1,
        written=written,
        watermarks={},
        errors={},
        rows={"node": rows},
        arrivals={},
        due=(),
        latest={},
        sheds={},
        state_bytes=0,
        cpu_s=seconds,
        seconds={"run: kernels": seconds},
    )


def test_a_run_takes_as_long_as_its_slowest_subtask() -> None:
    statistics = TaskStatistics(runs=1)
    for rows in (100, 300):
        statistics.add({"s": rows}, ["q"], [result(0.1), result(0.5 + 0.01 * rows, subtask=1)])
    assert statistics.cost.overhead == pytest.approx(0.5)
    assert statistics.cost.per_row == pytest.approx(0.01)


def test_cost_and_selectivity_follow_all_runs_except_the_first() -> None:
    statistics = TaskStatistics()
    statistics.add({"s": 100}, ["q"], [result(9.0, rows=50)])
    assert statistics.cost.overhead == TaskStatistics().cost.overhead
    assert statistics.selectivity("q") == pytest.approx(51 / 101)
    for rows in (100, 300, 200, 400):
        statistics.add({"s": rows}, ["q"], [result(0.5 + 0.01 * rows, rows=rows // 2)])
    assert statistics.cost.overhead == pytest.approx(0.5)
    assert statistics.cost.per_row == pytest.approx(0.01)
    assert (statistics.runs, statistics.rows_in, statistics.rows_out) == (5, 1100, 550)
    assert statistics.rows_by_node == {"node": 550}


def test_a_query_without_results_so_far_has_no_selectivity_of_zero() -> None:
    statistics = TaskStatistics()
    assert statistics.selectivity("q") == 1
    statistics.add({"s": 0}, ["q"], [result(0.1)])
    assert statistics.selectivity("q") == 1
    statistics.add({"s": 99}, ["q"], [result(0.1)])
    assert statistics.selectivity("q") == pytest.approx(0.01)


def test_restored_statistics_continue_like_the_original() -> None:
    first, second = TaskStatistics(), TaskStatistics()
    first.runs = second.runs = 1
    for rows in (50, 150, 250):
        first.add({"s": rows}, ["q"], [result(0.1 + 0.001 * rows, rows=10)])
    second.restore(json.loads(json.dumps(first.plain())))
    for statistics in (first, second):
        statistics.add({"s": 180}, ["q"], [result(0.3, rows=90)])
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
        statistics.add({"l": 200, "r": 500}, ["q"], [result(0.1, rows=400)])
    selectivity = 400 / 700
    assert statistics.selectivity("q") == pytest.approx(selectivity, rel=0.01)
    assert selectivity * statistics.worth("l") == pytest.approx(1.0)
    assert selectivity * statistics.worth("r") == pytest.approx(0.4)
    assert TaskStatistics().worth("l") == 1

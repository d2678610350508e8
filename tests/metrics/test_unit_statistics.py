"""What is measured of a unit's runs, and what of a job belongs to which of its runs."""

from __future__ import annotations

import json

import pytest

from slicemill.engine.task import TaskResult
from slicemill.metrics.unit_statistics import UnitStatistics, own_seconds
from slicemill.storage.chunk import ChunkInfo


def result(seconds: float, rows: int = 0) -> TaskResult:
    chunks = {"q": ChunkInfo("x", rows, 0, None, None)} if rows else {}
    return TaskResult(
        bucket=0,
        chunks=chunks,
        complete={},
        state=(),
        errors={},
        rows={"node": rows},
        arrivals={},
        due=None,
        cpu_s=seconds,
        seconds={"kernels": seconds},
        sheds={},
    )


def test_a_run_is_not_charged_for_its_neighbours() -> None:
    # Two cores, one second beside tasks: the job took as long as its longest task, and that second.
    cheap, dear = own_seconds([[result(0.1)], [result(3.0)]], job_s=4.0, cores=2)
    assert cheap == pytest.approx(0.1 + 1.0)
    assert dear == pytest.approx(3.0 + 1.0)
    # More tasks than cores: they wait for each other, which is no overhead.
    assert own_seconds([[result(1.0)] * 4], job_s=2.5, cores=2) == pytest.approx([2.0 + 0.5])
    # Clocks differ a little: what a job spends beside its tasks is never negative.
    assert own_seconds([[result(1.0)]], job_s=0.9, cores=2) == pytest.approx([1.0])


def test_cost_and_selectivity_follow_the_runs_but_for_the_first() -> None:
    statistics = UnitStatistics()
    statistics.add(100, ["q"], [result(9.0, rows=50)], seconds=9.0)
    assert statistics.cost.overhead == UnitStatistics().cost.overhead
    assert statistics.selectivity("q") == pytest.approx(51 / 101)
    for rows in (100, 300, 200, 400):
        statistics.add(rows, ["q"], [result(1.0, rows=rows // 2)], seconds=0.5 + 0.01 * rows)
    assert statistics.cost.overhead == pytest.approx(0.5)
    assert statistics.cost.per_row == pytest.approx(0.01)
    assert (statistics.runs, statistics.rows_in, statistics.rows_out) == (5, 1100, 550)
    assert statistics.rows_by_node == {"node": 550}


def test_nothing_so_far_is_not_nothing_ever() -> None:
    statistics = UnitStatistics()
    assert statistics.selectivity("q") == 1
    statistics.add(0, ["q"], [result(0.1)], seconds=0.1)
    assert statistics.selectivity("q") == 1
    statistics.add(99, ["q"], [result(0.1)], seconds=0.1)
    assert statistics.selectivity("q") == pytest.approx(0.01)


def test_what_is_kept_as_json_goes_on_as_if_nothing_had_happened() -> None:
    first, second = UnitStatistics(), UnitStatistics()
    first.runs = second.runs = 1
    for rows in (50, 150, 250):
        first.add(rows, ["q"], [result(1.0, rows=10)], seconds=0.1 + 0.001 * rows)
    second.restore(json.loads(json.dumps(first.plain())))
    for statistics in (first, second):
        statistics.add(180, ["q"], [result(1.0, rows=90)], seconds=0.3)
    assert second.plain() == first.plain()
    assert UnitStatistics().plain() == _restored({}).plain()


def _restored(kept: dict[str, object]) -> UnitStatistics:
    statistics = UnitStatistics()
    statistics.restore(kept)
    return statistics

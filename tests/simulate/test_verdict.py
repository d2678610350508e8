"""Verdict of a simulation in words."""

from __future__ import annotations

from slicemill.capacity.simulate import verdict
from slicemill.scheduling.capacity import Costs, Output, TaskCost
from slicemill.scheduling.rehearsal import Outcome

SPLITS = Costs(0.1, (TaskCost("a", ("s",), (Output("q", 1.0),), True, 0.0, 0.0, 1e-3),))
WHOLE = Costs(0.1, (TaskCost("b", ("s",), (Output("q", 1.0),), False, 0.0, 0.0, 1e-3),))


def words(costs: Costs, rate: float, cores: int, behind_s: float = 0.0) -> str:
    return " ".join(verdict(costs, {"s": rate}, cores, {"hnr": Outcome({}, 100.0, 100.0 + behind_s)}))


def test_a_load_that_fits_has_its_utilisation() -> None:
    assert words(SPLITS, 1000.0, 2) == "These rates need 50% of the CPU time of 2 cores."
    assert "CPU time of 1 core." in words(SPLITS, 500.0, 1)


def test_a_load_that_does_not_fit_has_the_required_cores_and_the_feasible_rates() -> None:
    told = words(SPLITS, 3000.0, 2)
    assert "1.50 times the CPU time of 2 cores" in told
    assert "At most 67% of these rates can be processed" in told
    assert "At least 4 cores are needed" in told


def test_a_task_that_cannot_be_split_is_named() -> None:
    assert "b alone needs more than one core" in words(WHOLE, 1500.0, 8)


def test_jobs_with_more_overhead_than_work_are_reported() -> None:
    busy = Outcome({}, 100.0, 100.0, busy_s=99.0, jobs=990)
    told = " ".join(verdict(SPLITS, {"s": 10.0}, 1, {"rr": busy}))
    assert "1% of the CPU time" in told
    assert "Under policy rr, jobs still run 99% of the time, 100 ms each" in told


def test_a_policy_that_falls_behind_below_capacity_is_named() -> None:
    assert "Under policy hnr, queries still fall behind" in words(SPLITS, 1000.0, 2, behind_s=40.0)
    assert "hnr" not in words(SPLITS, 1000.0, 2, behind_s=20.0)

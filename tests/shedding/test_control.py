"""Overload control: the lag bound holds, shares settle, and dropping stops when the load is over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.catalog.queries import LoadBudget
from slicemill.shedding.load import Backlog, ShareController, WaitingLoad, WindowSkipper

LAG_S = 2.0
BUDGET = LoadBudget(lag_us=2_000_000)
CALM = WaitingLoad(0.1, rows=100, state_bytes=0, bytes_per_row=50, backlog=Backlog(0.05, 0.01))
OVERHEAD_S, PER_ROW_S = 0.02, 1e-4


class Machine:
    """Tasks on one core in turn, each with its share of rows that arrive in groups, ten groups a second."""

    def __init__(self, budgets: list[LoadBudget | None]) -> None:
        self.controllers = [None if b is None else ShareController(b) for b in budgets]
        self.now = 0.0

    def serve(self, load: float, seconds: float) -> list[float]:
        """Return the wait of the oldest row for each run with a budget, at this work per second."""
        units = len(self.controllers)
        rows = load * 0.1 / units / PER_ROW_S
        start = self.now
        came = [start + 0.1 * n for n in range(1, int(seconds * 10) + 1)]
        next_group = [0] * units
        responses = []
        while min(next_group) < len(came):
            unit = min(range(units), key=lambda u: next_group[u])
            self.now = max(self.now, came[next_group[unit]])
            waiting = [sum(at <= self.now for at in came[first:]) * rows for first in next_group]
            certain = sum(OVERHEAD_S for n in waiting if n)
            certain += sum(PER_ROW_S * n for n, c in zip(waiting, self.controllers, strict=True) if c is None)
            shed = sum(PER_ROW_S * n for n, c in zip(waiting, self.controllers, strict=True) if c)
            arrived = came[next_group[unit]]
            share, controller = 1.0, self.controllers[unit]
            if controller is not None:
                about = WaitingLoad(self.now - arrived, int(waiting[unit]), 0, 50, Backlog(certain, shed))
                share = controller.decide(about)
            next_group[unit] += round(waiting[unit] / rows)
            self.now += OVERHEAD_S + share * waiting[unit] * PER_ROW_S
            if controller is not None:
                responses.append(self.now - arrived)
        return responses


def test_no_rows_are_dropped_without_overload() -> None:
    machine = Machine([BUDGET] * 4)
    machine.serve(load=0.5, seconds=20)
    assert all(controller is not None and controller.share == 1.0 for controller in machine.controllers)


@pytest.mark.parametrize("overload", [1.3, 2, 4, 10])
@pytest.mark.parametrize("units", [1, 8])
def test_the_lag_bound_holds_under_overload(overload: float, units: int) -> None:
    machine = Machine([BUDGET] * units)
    responses = machine.serve(overload, seconds=40)
    assert max(responses[len(responses) // 4 :]) < LAG_S
    # No more rows are dropped than necessary, except for the overhead of the runs.
    for controller in machine.controllers:
        assert controller is not None
        assert controller.share > 0.6 / overload


def test_tasks_without_a_budget_are_served_first() -> None:
    machine = Machine([None, None, BUDGET, BUDGET])
    responses = machine.serve(load=1.2, seconds=40)
    assert max(responses[len(responses) // 4 :]) < LAG_S
    shares = [controller.share for controller in machine.controllers if controller is not None]
    # Of 1.2 seconds of work a second, 0.6 s cannot be dropped; time remains for at most two thirds of the
    # rest.
    assert all(0.2 < share < 0.67 for share in shares)


def test_the_share_rises_again_when_the_load_is_over() -> None:
    machine = Machine([BUDGET])
    machine.serve(load=4, seconds=20)
    (controller,) = machine.controllers
    assert controller is not None and controller.share < 0.5
    machine.serve(load=0.3, seconds=5)
    assert controller.share == 1.0


def test_the_share_falls_at_once_and_rises_in_steps() -> None:
    controller = ShareController(BUDGET)
    assert controller.decide(replace(CALM, backlog=Backlog(0.1, 2.8))) == pytest.approx(0.5)
    assert [round(controller.decide(CALM), 1) for _ in range(6)] == [0.6, 0.7, 0.8, 0.9, 1.0, 1.0]


def test_a_task_with_a_greater_weight_drops_fewer_rows() -> None:
    light, heavy = ShareController(BUDGET), ShareController(BUDGET, weight=3)
    # Three seconds of work each in 1.5 seconds: the aim is 1.6 s, and 0.1 s is already used.
    crowded = replace(CALM, backlog=Backlog(0.0, 3 * 1 + 3 * 3))
    shares = light.decide(crowded), heavy.decide(crowded)
    assert shares == (pytest.approx(1.5 / 12), pytest.approx(3 * 1.5 / 12))
    assert sum(3 * share for share in shares) == pytest.approx(1.5)


@given(st.floats(0, 100), st.integers(0, 10**7), st.floats(0, 1), st.floats(0, 1e6))
def test_the_share_never_falls_below_its_lower_bound(
    waited: float, rows: int, least: float, work: float
) -> None:
    controller = ShareController(replace(BUDGET, least=least, memory=10**6))
    waiting = replace(CALM, waited_s=waited, rows=rows, state_bytes=rows, backlog=Backlog(work, work))
    for _ in range(5):
        assert least <= controller.decide(waiting) <= 1


def test_the_memory_budget_bounds_the_share() -> None:
    controller = ShareController(LoadBudget(memory=10_000))
    assert controller.decide(replace(CALM, state_bytes=0)) == 1.0
    assert controller.decide(replace(CALM, state_bytes=7_500)) == pytest.approx(0.5)
    assert controller.decide(replace(CALM, state_bytes=20_000)) == 0.0


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_skipped_windows_save_the_dropped_share_of_the_work(share: float) -> None:
    skipper = WindowSkipper(range_us=100)
    taken = 0
    for ts in range(0, 80_000, 10):
        spans = skipper.plan(share, ts)
        assert len(spans) <= 2
        taken += not any(first <= ts and ts + 100 <= last for first, last in spans)
    assert taken / 8_000 == pytest.approx(share, abs=0.02)


def test_without_overload_no_window_is_skipped() -> None:
    assert WindowSkipper(100).plan(1.0, 0) == ()

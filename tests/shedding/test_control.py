"""The overload detector: it keeps the lag, settles, and lets go when the load is over."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.shedding.control import Controller, Skipper, Waiting
from slicemill.shedding.load import LoadBudget

LAG_S = 2.0
BUDGET = LoadBudget(lag_us=2_000_000)
CALM = Waiting(waited_s=0.1, rows=100, overhead_s=0.05, per_row_s=1e-4, state_bytes=0, bytes_per_row=50)


def served(controller: Controller, rate: float, seconds: float, per_row_s: float = 1e-4) -> list[float]:
    """Rows come at a rate and are run batch by batch; the responses of the oldest row of each batch."""
    now = began = 0.0
    responses = []
    while now < seconds:
        now = max(now, began + 0.1)
        rows = int((now - began) * rate)
        waiting = replace(CALM, waited_s=now - began, rows=rows, per_row_s=per_row_s)
        share = controller.decide(waiting)
        arrived, began = began, now
        now += 0.05 + share * rows * per_row_s
        responses.append(now - arrived)
    return responses


def test_nothing_is_dropped_without_load() -> None:
    controller = Controller(BUDGET)
    served(controller, rate=5_000, seconds=60)
    assert controller.share == 1.0
    assert controller.decide(CALM) == 1.0


@pytest.mark.parametrize("overload", [1.5, 2, 4, 10])
def test_the_lag_is_kept_under_overload(overload: float) -> None:
    controller = Controller(BUDGET)
    settled = served(controller, rate=overload * 10_000, seconds=120)[20:]
    assert max(settled) < 1.5 * LAG_S
    # No more is given up than has to be, in the end.
    assert controller.share > 0.3 / overload


def test_the_share_rises_again_when_the_load_is_over() -> None:
    controller = Controller(BUDGET)
    served(controller, rate=40_000, seconds=60)
    assert controller.share < 1
    served(controller, rate=1_000, seconds=20)
    assert controller.share == 1.0


def test_between_the_marks_nothing_changes() -> None:
    controller = Controller(BUDGET, share=0.5)
    for waited in (0.7, 0.9, 1.1):
        assert controller.decide(replace(CALM, waited_s=waited)) == 0.5


def test_more_weight_gives_up_less() -> None:
    light, heavy = Controller(BUDGET), Controller(BUDGET, weight=4)
    late = replace(CALM, waited_s=5.0)
    assert light.decide(late) < heavy.decide(late) < 1


@given(st.floats(0, 100), st.integers(0, 10**7), st.floats(0, 1), st.integers(0, 10**10))
def test_the_least_share_stays_whatever_comes(waited: float, rows: int, least: float, state: int) -> None:
    controller = Controller(replace(BUDGET, least=least, memory=10**6))
    waiting = replace(CALM, waited_s=waited, rows=rows, state_bytes=state)
    for _ in range(5):
        assert least <= controller.decide(waiting) <= 1


def test_state_takes_as_many_tuples_as_there_is_room_for() -> None:
    controller = Controller(LoadBudget(memory=10_000))
    assert controller.decide(replace(CALM, state_bytes=0)) == 1.0
    assert controller.decide(replace(CALM, state_bytes=7_500)) == pytest.approx(0.5)
    assert controller.decide(replace(CALM, state_bytes=20_000)) == 0.0


@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_skipped_windows_save_what_cannot_be_afforded(share: float) -> None:
    skipper = Skipper(range_us=100)
    taken = 0
    for ts in range(0, 80_000, 10):
        spans = skipper.plan(share, ts)
        assert len(spans) <= 2
        taken += not any(first <= ts and ts + 100 <= last for first, last in spans)
    assert taken / 8_000 == pytest.approx(share, abs=0.02)


def test_without_load_no_window_is_skipped() -> None:
    assert Skipper(100).plan(1.0, 0) == ()

"""Measured costs and selectivities that adapt to the data (P21)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.scheduling.statistics import BatchCost, Selectivity


@pytest.mark.parametrize(("alpha", "expected"), [(0.175, 0.4475), (0.125, 0.4625), (0.0, 0.5), (1.0, 0.2)])
def test_golden_g9_selectivity_is_updated_after_each_window(alpha: float, expected: float) -> None:
    selectivity = Selectivity(0.5, alpha)
    assert not selectivity.observe(60, 12)
    assert selectivity.observe(40, 8) == (alpha > 0)
    assert selectivity.value == pytest.approx(expected)


def test_selectivity_converges_geometrically() -> None:
    selectivity = Selectivity(1.0)
    for _ in range(10):
        selectivity.observe(100, 20)
    assert selectivity.value - 0.2 == pytest.approx(0.8 * 0.825**10)


def test_a_guessed_selectivity_is_replaced_by_counts_until_the_first_window_is_full() -> None:
    selectivity = Selectivity(1.0, is_guess=True)
    for passes in (1, 0, 0, 0):
        assert selectivity.observe(1, passes) == (not passes)
    assert selectivity.value == pytest.approx(2 / 5)
    selectivity.observe(95, 18)
    assert selectivity.value == pytest.approx(20 / 100), "not yet full"
    selectivity.observe(1, 0)
    assert selectivity.value == pytest.approx(20 / 101)
    selectivity.observe(100, 100)
    assert selectivity.value == pytest.approx(0.825 * 20 / 101 + 0.175)


def test_batch_cost_is_fitted_to_past_runs() -> None:
    cost = BatchCost()
    for rows in (10, 1000, 500, 20_000, 7):
        cost.observe(rows, 0.08 + 2e-6 * rows)
    assert (cost.overhead, cost.per_row) == pytest.approx((0.08, 2e-6))
    assert cost.of(1000) == pytest.approx(0.082)
    same = BatchCost()
    same.observe(100, 0.2)
    same.observe(100, 0.2)
    assert same.of(100) == pytest.approx(0.2)


def test_noise_never_makes_the_overhead_of_a_run_zero() -> None:
    """The runs have similar sizes, and their times happen to grow faster than the sizes."""
    cost = BatchCost()
    for rows, seconds in ((600, 0.06), (300, 0.02), (1200, 0.14), (600, 0.05), (300, 0.02), (1200, 0.15)):
        cost.observe(rows, seconds)
    assert 0.002 <= cost.overhead < 0.004
    assert cost.of(700) == pytest.approx(0.073, rel=0.1)


def test_noise_of_large_runs_does_not_hide_the_overhead() -> None:
    cost = BatchCost()
    for rows, noise in (
        (1, 1.0),
        (5_000, 0.8),
        (10_000, 1.25),
        (1, 1.1),
        (5_000, 0.85),
        (10_000, 1.2),
        (1, 0.9),
    ):
        cost.observe(rows, noise * (0.045 + 6e-5 * rows))
    assert cost.ideal_time == pytest.approx(0.045, rel=0.1)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0.001, 10.0)), min_size=1, max_size=20))
def test_the_fitted_line_has_the_total_time_of_all_runs(runs: list[tuple[int, float]]) -> None:
    cost = BatchCost(decay=1.0)
    for rows, seconds in runs:
        cost.observe(rows, seconds)
    assert cost.overhead > 0 <= cost.per_row
    assert sum(cost.of(rows) for rows, _ in runs) == pytest.approx(sum(seconds for _, seconds in runs))


@pytest.mark.parametrize("factor", [0.1, 10.0])
def test_the_cost_follows_a_change_of_speed(factor: float) -> None:
    cost = BatchCost()
    for run in range(160):
        rows = 1_000 * (1 + run % 3)
        cost.observe(rows, (0.05 + 1e-4 * rows) * (factor if run >= 60 else 1.0))
    assert cost.of(2_000) == pytest.approx(0.25 * factor, rel=0.1)


def test_a_fast_run_is_forgotten_when_runs_become_slower() -> None:
    cost = BatchCost()
    cost.observe(100, 0.01)
    for rows in (100, 200) * 50:
        cost.observe(rows, 0.01 * rows)
    assert cost.overhead >= 0.09

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.strategies import PIECES
from slicemill_lab.charts.charts import (
    Objective,
    Piece,
    Stage,
    chart,
    merged,
    slope,
    smoothed_area,
    staircase_area,
    steeper,
    steepest_first,
)

STAGE = Stage("filter", time=2, selectivity=0.5, size_in=8, size_out=4)


@pytest.mark.parametrize(
    ("objective", "rate"),
    [
        (Objective.INPUT_COMPLETION, 1 / 2),
        (Objective.OUTPUT_RESPONSE, 0.5 / 2),
        (Objective.MEMORY, 8 / 2),
    ],
)
def test_a_component_that_feeds_a_sink_has_the_slope_of_its_objective(
    objective: Objective, rate: float
) -> None:
    assert slope(merged(chart([STAGE], objective))) == rate


def test_the_memory_slope_counts_output_that_stays_in_a_buffer() -> None:
    assert slope(merged(chart([STAGE], Objective.MEMORY, delivers=False))) == (8 - 0.5 * 4) / 2


def test_weight_multiplies_outputs_and_inputs_but_never_memory() -> None:
    plain = {objective: merged(chart([STAGE], objective)).drop for objective in Objective}
    weighted = {objective: merged(chart([STAGE], objective, weight=3)).drop for objective in Objective}
    assert weighted == {
        Objective.INPUT_COMPLETION: 3 * plain[Objective.INPUT_COMPLETION],
        Objective.OUTPUT_RESPONSE: 3 * plain[Objective.OUTPUT_RESPONSE],
        Objective.MEMORY: plain[Objective.MEMORY],
    }


def test_the_area_of_one_queue_is_half_time_drop_and_square_of_the_count() -> None:
    n, time = 10, 3
    for drop in (1, 0.25, 64):
        assert smoothed_area([Piece(time, drop).times(n)]) == drop * time * n**2 / 2


def test_the_orders_of_two_components_differ_by_one_rectangle() -> None:
    a, b, n_a, n_b = Piece(2, 1), Piece(5, 1), 4, 3
    own = smoothed_area([a.times(n_a)]) + smoothed_area([b.times(n_b)])
    assert smoothed_area([a.times(n_a), b.times(n_b)]) == own + 2 * n_a * n_b
    assert smoothed_area([b.times(n_b), a.times(n_a)]) == own + 5 * n_b * n_a
    assert steeper(a, b)


@given(PIECES, PIECES, st.integers(1, 9), st.integers(1, 9))
def test_an_exchange_of_two_components_pays_exactly_if_the_later_is_steeper(
    a: Piece, b: Piece, n_a: int, n_b: int
) -> None:
    queue_a, queue_b = a.times(n_a), b.times(n_b)
    assert steeper(a, b) == (smoothed_area([queue_a, queue_b]) < smoothed_area([queue_b, queue_a]))


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_steepest_first_is_optimal_among_all_orders_of_components(parts: list[Piece]) -> None:
    best = min(smoothed_area(order) for order in permutations(parts))
    assert smoothed_area(steepest_first(parts)) == best


@given(st.lists(PIECES, min_size=1, max_size=4))
def test_staircase_and_smoothed_area_differ_by_the_same_amount_in_every_order(parts: list[Piece]) -> None:
    differences = {staircase_area(order) - smoothed_area(order) for order in permutations(parts)}
    assert len(differences) == 1


def test_a_cost_measured_as_zero_is_replaced_by_a_very_small_cost() -> None:
    assert slope(merged(chart([Stage("free", 0)], Objective.OUTPUT_RESPONSE))) == pytest.approx(1e9)


def test_an_operator_without_input_has_slope_zero() -> None:
    pieces = chart([Stage("none pass", 1, selectivity=0), Stage("idle", 1)], Objective.OUTPUT_RESPONSE)
    assert [slope(piece) for piece in pieces] == [0, 0]


def test_a_piece_needs_time() -> None:
    with pytest.raises(ValueError, match="must take time"):
        Piece(Fraction(0), Fraction(1))


def test_a_stage_cannot_have_a_negative_time() -> None:
    with pytest.raises(ValueError, match="'filter'"):
        Stage("filter", -1)

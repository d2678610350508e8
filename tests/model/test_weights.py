"""Weights closed under shifts: their values and the size of their state (C21)."""

from __future__ import annotations

import math
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models.algebra import polynomial
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.scalars import evaluate
from slicemill.extensions.models.terms import AGE, POSITION
from slicemill.extensions.models.weights import Mode, Weight, weight_of

FACTORS = ["i", "i^2", "0.5^i", "2^i", "3^(i/2)", "exp(-i/5)", "cos(i)", "sin(2*pi*i/7)", "cos(pi*i/3 + 1)"]
FACTORS += ["(-1)^i", "sin(i)^2"]


def weight(text: str) -> Weight | None:
    (term,) = polynomial(parse(text)).terms
    assert term[1] == 1
    return weight_of(term[0], POSITION)


@settings(max_examples=60)
@given(factors=st.lists(st.sampled_from(FACTORS), min_size=1, max_size=3), place=st.integers(1, 9))
def test_a_weight_has_the_value_of_its_expression(factors: list[str], place: int) -> None:
    text = " * ".join(factors)
    found = weight(text)
    assert found is not None
    assert found.at(place) == pytest.approx(float(evaluate(parse(text), {"i": place})), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "state"),
    [("i", 2), ("i^3", 4), ("2^i", 1), ("cos(i)", 1), ("i*cos(i)", 2), ("cos(i)*sin(i)", 1), ("sin(i)^2", 2)],
)
def test_a_weight_needs_the_expected_number_of_stored_values(text: str, state: int) -> None:
    """cos(i)·sin(i) is half of sin(2i)."""
    found = weight(text)
    assert found is not None
    assert found.state == state


@pytest.mark.parametrize("text", ["1/i", "log(i)", "i^0.5", "cos(i^2)", "2^(i^2)", "x^i", "i^i", "cos(i)^-1"])
def test_other_weights_are_not_closed_under_shifts(text: str) -> None:
    (term,) = polynomial(parse(text)).terms
    assert weight_of(term[0], POSITION) is None


@settings(max_examples=40)
@given(
    degree=st.integers(0, 3),
    u=st.floats(0, 5),
    step=st.floats(-2, 2),
    turns=st.fractions(-1, 1, max_denominator=7),
    base=st.fractions("1/2", 2, max_denominator=5),
)
def test_a_shift_combines_lower_powers(degree, u, step, turns, base) -> None:
    """(u + s)^r e^(β(u + s)) = e^(βs) Σ_k binomial(r, k) s^(r-k) u^k e^(βu), the basis of all stored sums."""
    mode = Mode(base=base, turns=turns)
    shifted = (u + step) ** degree * mode.at(u + step)
    combined = mode.at(step) * sum(
        comb(degree, k) * step ** (degree - k) * u**k * mode.at(u) for k in range(degree + 1)
    )
    assert combined == pytest.approx(shifted, rel=1e-9, abs=1e-9)


def test_weights_are_classified_as_growing_shrinking_or_periodic() -> None:
    growing, fading, turning = weight("2^i"), weight("0.5^i"), weight("cos(i)")
    assert growing is not None and growing.growing and not growing.shrinking
    assert fading is not None and fading.shrinking and not fading.growing
    assert turning is not None and not turning.growing and not turning.shrinking and turning.modes_turn
    aged = weight_of(polynomial(parse("exp(-age/2)")).terms[0][0], AGE)
    assert aged is not None and aged.at(2) == pytest.approx(math.exp(-1))

"""Double-double arithmetic against rationals (C24)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.extensions.models import numerics as plain
from slicemill.extensions.models.numerics import NOISE
from slicemill.kernels.kernel import inside_python

NUMBERS = st.floats(-1e12, 1e12, allow_subnormal=False).map(lambda x: 0.0 if abs(x) < 1e-12 else x)
PRECISE = 2.0**-98


@pytest.fixture(autouse=True, scope="module")
def as_python() -> Iterator[None]:
    """Run kernels as Python, because the compiled form gives the same values."""
    with inside_python():
        yield


def exact(pair: tuple[float, float]) -> Fraction:
    return Fraction(pair[0]) + Fraction(pair[1])


def near(found: tuple[float, float], wanted: Fraction, scale: Fraction) -> bool:
    return abs(exact(found) - wanted) <= Fraction(PRECISE) * abs(scale)


@settings(max_examples=60)
@given(a=NUMBERS, b=NUMBERS, c=NUMBERS)
@example(1e16, 1.0, -1e16)
def test_sums_products_and_quotients_are_accurate(a: float, b: float, c: float) -> None:
    x, y, z = Fraction(a), Fraction(b), Fraction(c)
    total = plain.add(*plain.add(a, 0.0, b, 0.0), c, 0.0)
    assert near(total, x + y + z, abs(x) + abs(y) + abs(z))
    product = plain.multiply(*plain.multiply(a, 0.0, b, 0.0), c, 0.0)
    assert near(product, x * y * z, x * y * z)
    quotient = plain.divide(a, 0.0, b, 0.0)
    assert math.isnan(quotient[0]) if b == 0 else near(quotient, x / y, x / y)
    assert near(plain.whole_power(a, 0.0, 3), x**3, x**3)
    root = plain.root(abs(a), 0.0)
    assert near(plain.multiply(*root, *root), abs(x), abs(x))


def test_differences_below_the_noise_are_zero() -> None:
    high = 1.0 + 2.0**-40
    assert plain.difference(high, 0.0, 1.0, 0.0) == (2.0**-40, 0.0)
    assert plain.difference(1.0, NOISE / 4, 1.0, 0.0) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "given_", "wanted"),
    [
        ("floor", (2.0, -1e-20), 1.0),
        ("ceil", (2.0, 1e-20), 3.0),
        ("absolute", (-2.0, -1e-20), 2.0),
        ("sign", (-3.0, 0.0), -1.0),
        ("nonnegative", (-1e-30, 0.0), 0.0),
        ("modulo", (-7.0, 0.0, 3.0, 0.0), 2.0),
        ("power", (2.0, 0.0, -3.0, 0.0), 0.125),
        ("power", (-8.0, 0.0, 1 / 3, 0.0), math.nan),
        ("log", (0.0, 0.0), math.nan),
        ("root", (-1.0, 0.0), math.nan),
        ("exp", (1000.0, 0.0), math.nan),
    ],
)
def test_functions_have_their_exact_values_or_nan(
    name: str, given_: tuple[float, ...], wanted: float
) -> None:
    found = getattr(plain, name)(*given_)[0]
    assert found == wanted or (math.isnan(found) and math.isnan(wanted))


def test_scaled_products_do_not_overflow() -> None:
    h, low, scale = 0.0, 0.0, 0
    for _ in range(10):
        h, low, scale = plain.scaled_product(h, low, scale, 1e200, 0.0, False)
    for _ in range(10):
        h, low, scale = plain.scaled_product(h, low, scale, 1e199, 0.0, True)
    wanted = (Fraction(1e200) / Fraction(1e199)) ** 10
    assert near(plain.unscaled(h, low, scale), wanted, wanted)
    assert plain.unscaled(0.0, 0.0, 0) == (1.0, 0.0)


def test_angles_are_reduced_by_whole_turns_before_rounding() -> None:
    far = 8 * 10**15 + 3
    assert plain.turn(1, 8, far) == 2 * math.pi * 3 / 8
    assert plain.angle(0.125, 0.0, far) == 2 * math.pi * 3 / 8

"""Models listed in the paper (C16), and common statistics, by name."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from slicemill.extensions.models.formulas import CATALOGUE
from slicemill.extensions.models.model import Model, expression


def model(name: str) -> Model:
    return expression(CATALOGUE[name])


def norm(p: Fraction | int) -> Model:
    """Return the L_p norm."""
    return expression(f"norm(x, {p})")


def geometric(factor: str) -> Model:
    """Return a sum in which each element weighs `factor` times its successor."""
    return expression(f"sum(({factor})^j * x)")


def decaying(half_life: str) -> Model:
    """Return a sum whose weights halve every `half_life` seconds of age."""
    return expression(f"sum(x * 0.5^(age/({half_life})))")


def fourier(k: int, n: int) -> tuple[Model, Model]:
    """Return the k-th Fourier coefficient of n elements, real and imaginary part."""
    parts: dict[str, Callable[[str], str]] = {
        "cos": lambda text: f"sum({text})",
        "sin": lambda text: f"-sum({text})",
    }
    real, imaginary = (expression(wrap(f"{f}(2*pi*{k}*(i - 1)/{n})*x")) for f, wrap in parts.items())
    return real, imaginary


def hann(n: int) -> Model:
    """Return a sum weighted by a Hann window of n elements."""
    return expression(f"sum((0.5 - 0.5*cos(2*pi*(i - 1)/{n}))*x)")

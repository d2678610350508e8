"""Models by name: the operators that the paper lists (C16), and the statistics people ask for."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from slicemill.model.model import Model, expression

# Parameters are x, or x and y.
CATALOGUE: dict[str, str] = {
    "count": "count()",
    "sum": "sum(x)",
    "mean": "mean(x)",
    "variance": "variance(x)",
    "var_pop": "var_pop(x)",
    "stddev": "stddev(x)",
    "sum_of_squares": "sum(x^2)",
    "l1_norm": "norm(x, 1)",
    "l2_norm": "norm(x, 2)",
    "l3_norm": "norm(x, 3)",
    "l_infinity_norm": "max(abs(x))",
    "geometric_mean": "exp(sum(log(x))/n)",
    "harmonic_mean": "n/sum(1/x)",
    "product": "prod(x)",
    "max": "max(x)",
    "min": "min(x)",
    "range": "max(x) - min(x)",
    "median": "median(x)",
    "skewness": "let m = mean(x) in sqrt(n)*sum((x - m)^3)/nonnegative(sum((x - m)^2))^1.5",
    "kurtosis": "let m = mean(x) in n*sum((x - m)^4)/sum((x - m)^2)^2",
    "ramp_average": "2*sum(i*x)/(n*(n + 1))",
    "dot": "sum(x*y)",
    "covariance": "covariance(x, y)",
    "correlation": "correlation(x, y)",
    "slope": "slope(x, y)",
    "intercept": "intercept(x, y)",
    "r2": "r2(x, y)",
    "weighted_mean": "sum(x*y)/sum(y)",
    "cosine": "sum(x*y)/(norm(x, 2)*norm(y, 2))",
    "distance": "norm(x - y, 2)",
}


def model(name: str) -> Model:
    return expression(CATALOGUE[name])


def norm(p: Fraction | int) -> Model:
    """L_p."""
    return expression(f"norm(x, {p})")


def geometric(factor: str) -> Model:
    """A weighted sum in which each element counts `factor` times its successor."""
    return expression(f"sum(({factor})^j * x)")


def decaying(half_life: str) -> Model:
    """A sum in which an element counts half after `half_life` seconds."""
    return expression(f"sum(x * 0.5^(age/({half_life})))")


def fourier(k: int, n: int) -> tuple[Model, Model]:
    """Real and imaginary part of the k-th coefficient of the discrete Fourier transform of n elements."""
    parts: dict[str, Callable[[str], str]] = {
        "cos": lambda text: f"sum({text})",
        "sin": lambda text: f"-sum({text})",
    }
    real, imaginary = (expression(wrap(f"{f}(2*pi*{k}*(i - 1)/{n})*x")) for f, wrap in parts.items())
    return real, imaginary


def hann(n: int) -> Model:
    """A sum with the weights of a Hann window of n elements."""
    return expression(f"sum((0.5 - 0.5*cos(2*pi*(i - 1)/{n}))*x)")

"""Statistics of values far from zero, and after a very large number has left the window (C24).

The oracle is written here, in rational numbers from the definitions: central moments about the exact mean.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest

from aggregate.compiler.comparing import call_of, over, tuples_of
from aggregate.compiler.test_models import answers
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import Window
from slicemill.extensions.models.binder import with_model
from slicemill.functions.vectors import to_values
from slicemill.types import DOUBLE
from slicemill_lab.model.reference.catalogue import model

Values = Sequence[Fraction]
SECOND = 1_000_000


def moment(x: Values, power: int, y: Values | None = None) -> Fraction:
    """Return Σ(x - mean x)^power, or Σ(x - mean x)(y - mean y)."""
    mean = sum(x) / len(x)
    if y is None:
        return sum(((value - mean) ** power for value in x), Fraction(0))
    other = sum(y) / len(y)
    return sum(((a - mean) * (b - other) for a, b in zip(x, y, strict=True)), Fraction(0))


def root(value: Fraction) -> Fraction:
    """Return a square root with far more digits than a double has."""
    scale = 10**60
    return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)


def over_(above: Fraction, below: Fraction | int) -> Fraction | None:
    return above / below if below else None


def slope(x: Values, y: Values) -> Fraction | None:
    return over_(moment(x, 1, y), moment(x, 2))


def intercept(x: Values, y: Values) -> Fraction | None:
    found = slope(x, y)
    return None if found is None else sum(y) / len(y) - found * sum(x) / len(x)


ORACLE: dict[str, Callable[..., Fraction | None]] = {
    "mean": lambda x: sum(x) / len(x),
    "variance": lambda x: over_(moment(x, 2), len(x) - 1),
    "skewness": lambda x: over_(root(Fraction(len(x))) * moment(x, 3), root(moment(x, 2)) ** 3),
    "kurtosis": lambda x: over_(len(x) * moment(x, 4), moment(x, 2) ** 2),
    "covariance": lambda x, y: over_(moment(x, 1, y), len(x) - 1),
    "correlation": lambda x, y: over_(moment(x, 1, y), root(moment(x, 2)) * root(moment(y, 2))),
    "slope": slope,
    "intercept": intercept,
    "r2": lambda x, y: over_(moment(x, 1, y) ** 2, moment(x, 2) * moment(y, 2)),
}


def stream(shape: str) -> list[tuple[float, float]]:
    pick = random.Random(shape)
    noise = [(pick.gauss(0, 1), pick.gauss(0, 1)) for _ in range(120)]
    related = [(x, y + x / 2) for x, y in noise]
    if shape == "far":
        return [(1e9 + x, y - 3e12) for x, y in related]
    if shape == "level":  # The level stays high for two windows, and then returns.
        return [(x + 1e9 * (i // 25 % 4 > 1), y - 1e11 * (i // 30 % 2)) for i, (x, y) in enumerate(related)]
    if (
        shape == "outlier"
    ):  # Outliers that absorb all other values, so frequent that a window nearly always contains one.
        return [(1e40 if i in (5, 40) else 1e7 if i % 11 == 3 else x, y) for i, (x, y) in enumerate(related)]
    assert shape == "constant"
    return [(0.1 + 1e9, y if i < 60 else 7.7) for i, (_, y) in enumerate(related)]


def near(found: float | None, wanted: Fraction | None, scale: float) -> bool:
    if found is None or wanted is None:
        return found is None and wanted is None
    return abs(Fraction(found) - wanted) <= Fraction(1e-9) * max(abs(wanted), Fraction(scale))


def check(name: str, shape: str, form: str, window: Window, holds: Callable[[int], range]) -> None:
    """Check a statistic; `holds` returns the numbers of the tuples in the window of a tuple."""
    wanted, columns = model(name), len(model(name).parameters)
    rows = [values[:columns] for values in stream(shape)]
    catalog, types = with_model("m", wanted, Catalog()), [DOUBLE] * columns
    uda = prepare(call_of(catalog, "m", types, window), catalog, forms=(form,))
    assert uda.how.form == form, uda.how
    found = answers(uda, types, [(i * SECOND, 0, *row) for i, row in enumerate(rows)], [33])
    assert found
    for number, value in found:
        inside = [rows[i] for i in holds(number)]
        exact = ORACLE[name](*([Fraction(row[c]) for row in inside] for c in range(columns)))
        # A mean of numbers near 0, or an intercept, may be tiny compared with the numbers.
        scale = 1e-3 * max(abs(v) for row in inside for v in row) if name in ("mean", "intercept") else 1e-3
        assert near(value, exact, scale), (name, shape, number, value, exact and float(exact))


def last(rows: int) -> Callable[[int], range]:
    return lambda number: range(max(0, number - rows), number + 1)


@pytest.mark.parametrize("shape", ["far", "level", "outlier", "constant"])
@pytest.mark.parametrize("name", sorted(ORACLE))
def test_statistics_of_sliding_windows_are_accurate_far_from_zero(name: str, shape: str) -> None:
    # One tuple arrives each second, so both windows have 20 tuples.
    window = over("RANGE", 19 * SECOND) if shape == "level" else over("ROWS", 19)
    check(name, shape, PYTHON, window, last(19))


@pytest.mark.parametrize("shape", ["far", "level"])
@pytest.mark.parametrize("name", ["kurtosis", "skewness", "correlation"])
def test_statistics_of_unbounded_tumbling_and_hopping_windows_are_accurate_far_from_zero(
    name: str, shape: str
) -> None:
    check(name, shape, PYTHON, over("ROWS", None), lambda number: range(number + 1))
    check(name, shape, PYTHON, over("ROWS", 19, 20), last(19))
    check(name, shape, PYTHON, over("ROWS", 19, 5), last(19))


@pytest.mark.parametrize("name", ["kurtosis", "slope"])
def test_machine_code_statistics_are_accurate_far_from_zero(name: str) -> None:
    check(name, "level", MACHINE, over("ROWS", 19), last(19))


def test_group_statistics_are_accurate_far_from_zero() -> None:
    values = [1e9 + value for value, _ in stream("far")]
    wanted = model("kurtosis")
    catalog = with_model("m", wanted, Catalog())
    uda = prepare(call_of(catalog, "m", [DOUBLE], None), catalog, forms=(PYTHON,))
    state = uda.start()
    rows = [(i * SECOND, 0, value) for i, value in enumerate(values)]
    uda.run(state, tuples_of(rows, [DOUBLE]), None)
    (found,) = to_values(uda.finish(state).columns[0], 1)
    assert near(found, ORACLE["kurtosis"]([Fraction(value) for value in values]), 1e-3)

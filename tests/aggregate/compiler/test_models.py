"""Models in the loops of aggregates give the rows of their definition, whatever the strategy and batches."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregate.compiler.by_reference import ByReference
from aggregate.compiler.comparing import call_of, outcome, over, tuples_of
from slicemill.aggregates.calls import Uda
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.queries import Window
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.model import Model, expression
from slicemill.functions.vectors import to_values
from slicemill.time import END
from slicemill.types import DOUBLE, TIMESTAMP, Type

SECOND = 1_000_000
TEXTS = [
    "count()", "sum(x)", "variance(x)", "correlation(x, y)", "slope(x, y)", "prod(x)", "norm(x, 3)",
    "sum(where(x > y, x, y))", "count(x > 1)", "sum(1/x)", "sum(sqrt(x))", "sum(x % 3)", "sum(x)/sum(y)",
    "max(x)", "min(x*y)", "argmax(x)", "first(x) - last(y)", "median(x)", "quantile(x, 0.9)", "topk(x, 2)",
    "gcd(floor(x))", "xor(floor(abs(x)))", "all(x > 0)", "any(x > y)", "not any(x > 4) and all(y < 6)",
    "sum(i*x)", "sum(i^2*x)/n", "sum(0.5^j*x)", "sum(j*0.9^j*x)", "sum(0.5^i*x)", "sum(i*0.8^i*x)",
    "sum(cos(2*pi*3*i/8)*x)", "sum(i*sin(i)*x)", "sum((-1)^i*x)", "sum(2^i*x)/2^n", "sum(1.1^j*cos(j)*x)",
    "sum(x*0.5^age)", "sum(x*age*exp(-age/3))", "sum(cos(age)*x)", "sum(age^2*x)", "sum(x/(1 + age))",
    "sum(log(i)*x)", "max(i*x)", "let m = mean(x) in sum((x - m)^2)", "let m = mean(x) in sum(abs(x - m))",
    "sum(i*x)/n^2 + max(x)", "sum(cos(2*pi*i/n)*x)", "sum(exp(age/4)*x)", "median(i*x) + quantile(j*x, 0.3)",
    "let m = median(x) in median(abs(x - m)) + topk(abs(x - m), 2)", "prod(x/n) + argmax(x/i) + first(n*x)",
    "let m = mean(x) in all(x < m + 2) or any(x < m - 3)", "argmin(x) + lag(y, 1)", "last(x) - lag(x, 2)",
    "argmin(x/i) + lag(i*x, 1)",
    "let m = mean(x) in let d = sum(abs(x - m))/n in sum((x - m)/d)",
]  # fmt: skip
WINDOWS = [
    over("ROWS", 4),
    over("ROWS", 0),
    over("RANGE", 5 * SECOND),
    over("ROWS", None),
    over("ROWS", 5, 2),
    over("RANGE", 6 * SECOND, 2 * SECOND),
    over("RANGE", 4 * SECOND, 4 * SECOND),
]
NUMBERS = st.sampled_from([None, 0.0, 1.0, 2.5, -3.0, 4.0, 7.25, 0.1, math.nan, math.inf, 1e4])


def types_of(model: Model) -> list[Type]:
    return [DOUBLE] * len(model.parameters) + [TIMESTAMP] * model.uses_age


def answers(uda: Uda, types: Sequence[Type], rows: Sequence[Any], cuts: Sequence[int]) -> list[Any]:
    state, found = uda.start(), []
    for begin, end in pairwise([0, *sorted(cuts), len(rows)]):
        chunk = rows[begin:end]
        given_ = uda.run(state, tuples_of(chunk, types), END if end == len(rows) else None)
        found += zip(given_.numbers.tolist(), to_values(given_.columns[0], len(given_.numbers)), strict=True)
    return found


def same(found: list[Any], expected: list[Any], tolerance: float) -> bool:
    return len(found) == len(expected) and all(
        a[0] == b[0] and (a[1] == b[1] or _near(a[1], b[1], tolerance))
        for a, b in zip(found, expected, strict=True)
    )


def _near(a: Any, b: Any, tolerance: float) -> bool:
    return a is not None and b is not None and math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance)


def check(
    model: Model, window: Window, rows: Sequence[Any], cuts: Sequence[int], form: str, tolerance: float
) -> None:
    catalog, types = with_model("m", model, Catalog()), types_of(model)
    call = call_of(catalog, "m", types, window)
    uda = prepare(call, catalog, forms=(form,))
    assert uda.how.form == form, uda.how
    expected = answers(ByReference(call, catalog), types, rows, [])
    found = answers(uda, types, rows, cuts)
    assert same(found, expected, tolerance), (found, expected, uda.how.source)


def rows_for(model: Model, values: Sequence[Sequence[Any]], gaps: Sequence[int]) -> list[Any]:
    rows, ts = [], 0
    for given_, gap in zip(values, gaps, strict=False):
        ts += gap * SECOND
        rows.append((ts, len(rows) % 3 % 2, *given_[: len(model.parameters)], *[ts] * model.uses_age))
    return rows


@pytest.mark.parametrize("text", TEXTS)
@settings(max_examples=8)
@given(
    values=st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=24),
    gaps=st.lists(st.integers(0, 2), min_size=24, max_size=24),
    cut=st.integers(0, 24),
    window=st.sampled_from(WINDOWS),
)
@example(
    [(0.1, 0.1)] * 6, [1] * 24, 3, WINDOWS[0]
)  # Without spread the variance is exactly zero, not a rounding error.
@example([(None, 1.0), (2.0, None)] * 4, [1] * 24, 5, WINDOWS[2])
def test_a_model_gives_the_rows_of_its_definition(text, values, gaps, cut, window) -> None:
    model = expression(text)
    rows = rows_for(model, values, gaps)
    check(model, window, rows, [min(cut, len(rows))], PYTHON, 1e-9)


@pytest.mark.parametrize(
    ("text", "window", "nulls"),
    [
        ("prod(y) + sum(0.5^j*x) + sum(cos(2*pi*i/5)*x)", WINDOWS[0], "skip"),
        ("sum(0.5^i*x) + gcd(floor(y))", WINDOWS[0], "poison"),
        ("max(x) + sum(x*0.5^age) + where(all(x > 0), 1, 2)", WINDOWS[2], "skip"),
        ("let m = median(x) in sum(abs(x - m)) + xor(floor(n*x))", WINDOWS[3], "skip"),
    ],
)
def test_a_model_in_machine_code_gives_the_rows_of_its_definition(
    text: str, window: Window, nulls: str
) -> None:
    """Covers all kinds of accumulators: machine code is stricter than Python about names and types."""
    model = expression(text, nulls=nulls)
    pick = random.Random(3)
    values = [[pick.choice([None, 0.5, 1.0, 3.0, -2.0, 8.0]) for _ in range(2)] for _ in range(60)]
    rows = rows_for(model, values, [pick.randrange(3) for _ in range(60)])
    check(model, window, rows, [7, 30], MACHINE, 1e-9)


@pytest.mark.parametrize("text", ["sum(x^2)/2 + max(y)", "median(x) + count(y > 1)", "sum(i*x) + sum(j*y)"])
def test_a_model_of_groups_has_one_value_at_the_end(text: str) -> None:
    model = expression(text)
    rows = rows_for(model, [(1.0, 2.0), (None, 1.0), (4.0, -8.0), (0.5, 3.0), (2.0, None)], [1] * 5)
    catalog, types = with_model("m", model, Catalog()), types_of(model)
    call = call_of(catalog, "m", types, None)
    expected, found = (
        outcome(prepare(call, catalog, forms=forms), types, [rows[:2], rows[2:]], finishes=True)
        for forms in ((), (PYTHON,))
    )
    assert found == expected


def test_rounding_errors_do_not_outlive_their_window() -> None:
    """G12, with a number that absorbs all others: it has no effect after it has left the window."""
    model = expression("sum(x)")
    rows = rows_for(model, [[v] for v in (1e16, 1.0, 1.0, 1e300, 3.0, 4.0, 5.0)], [1] * 7)
    catalog = with_model("m", model, Catalog())
    uda = prepare(call_of(catalog, "m", [DOUBLE], over("ROWS", 1)), catalog, forms=(PYTHON,))
    rows = [(ts, 0, value) for ts, _, value in rows]
    found = [value for _, value in answers(uda, [DOUBLE], rows, [])]
    assert found[:3] == [1e16, 1e16 + 1, 2.0]
    assert found[6:] == [9.0]


@pytest.mark.parametrize("window", [over("ROWS", 2**63 - 1), over("RANGE", 2**63 - 1)])
def test_a_window_of_2_to_the_63_rows_never_drops_a_row(window: Window) -> None:
    catalog = with_model("m", expression("sum(x)"), Catalog())
    uda = prepare(call_of(catalog, "m", [DOUBLE], window), catalog, forms=(MACHINE,))
    rows = [(number, 0, 1.0) for number in range(40)]
    assert [value for _, value in answers(uda, [DOUBLE], rows, [])] == [float(n + 1) for n in range(40)]

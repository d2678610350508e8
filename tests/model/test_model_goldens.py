"""Worked examples of the conceptual model, with all digits (G1-G15)."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest

from slicemill.extensions.models.canonical_graphs import blocking_graph, incremental_graph
from slicemill.extensions.models.cores import CoreKind
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.terms import ModelError
from slicemill.extensions.models.vectors import (
    filter_oldest,
    merge,
    permute,
    positions_of_greatest,
    search_where,
    transform,
    zipped,
)
from slicemill_lab.model.reference.interpret import Instance, run

STATISTICS = {
    "sum(x)": [14, 17, 18, 21, 26],
    "sum(x^2)": [52, 73, 82, 115, 180],
    "mean(x)": ["7/2", "17/4", "9/2", "21/4", "13/2"],
    "sum(x^2)/n - (sum(x)/n)^2": ["3/4", "3/16", "1/4", "19/16", "11/4"],
    "var_pop(x)": ["3/4", "3/16", "1/4", "19/16", "11/4"],
    "variance(x)": ["1", "1/4", "1/3", "19/12", "11/3"],
    "max(x)": [4, 5, 5, 7, 9],
    "min(x)": [2, 4, 4, 4, 5],
}
REGRESSION = {
    "sum(x)": [10, 14, 18],
    "sum(y)": [14, 18, 24],
    "sum(x^2)": [30, 54, 86],
    "sum(x*y)": [39, 67, 115],
    "sum(y^2)": [54, 86, 158],
    "(n*sum(x*y)-sum(x)*sum(y)) / (n*sum(x^2)-sum(x)^2)": ["4/5", "4/5", "7/5"],
    "slope(x, y)": ["4/5", "4/5", "7/5"],
    "intercept(x, y)": ["3/2", "17/10", "-3/10"],
    "r2(x, y)": ["16/25", "16/25", "7/10"],
}


def over(text: str, values: Sequence[object], size: int) -> list[object]:
    """Return the values of the model over each full window, by its definition."""
    model = expression(text)
    rows = [dict(zip(model.parameters, v if isinstance(v, tuple) else (v,), strict=True)) for v in values]
    return [model.value(rows[k : k + size]) for k in range(len(rows) - size + 1)]


def slides(text: str, values: Sequence[object], size: int, *, incremental: bool = True) -> list[object]:
    """Return the values of the model over each full window, by one of its graphs."""
    model = expression(text)
    graph = incremental_graph(model) if incremental else blocking_graph(model)
    later = [Instance((value,), leaving=1) for value in values[size:]]
    return list(run(graph, [Instance(tuple(values[:size])), *later]))


def test_g1_a_sum_of_squares_is_incremental() -> None:
    assert over("sum(x^2)", [1, 2, 3, 4, 5], 4) == [30, 54]
    assert slides("sum(x^2)", [1, 2, 3, 4, 5], 4) == [30, 54]
    assert expression("sum(x^2)").classification.kind is CoreKind.INCREMENTAL


def test_g2_a_sum_with_arbitrary_weights_is_blocking() -> None:
    weights = "sum(x * where(i = 1, 0.1, where(i = 2, 0.2, where(i = 3, 0.3, 0.4))))"
    assert over(weights, [1, 2, 3, 4, 5], 4) == [3, 4]
    found = expression(weights).classification
    assert found.kind is CoreKind.BLOCKING
    assert found.reason.startswith("not uniform: uses position i")


def test_g3_the_euclidean_norm_has_the_published_values() -> None:
    assert over("norm(x, 2)", [3, 4, 12], 2) == [5, 12.649110640673518]


@pytest.mark.parametrize(("text", "wanted"), STATISTICS.items())
def test_g4_statistics_have_the_published_values(text: str, wanted: list[object]) -> None:
    assert over(text, [2, 4, 4, 4, 5, 5, 7, 9], 4) == [Fraction(w) for w in wanted]  # type: ignore[arg-type]


def test_g4_norms_have_the_published_values_and_short_windows_are_null() -> None:
    wanted = [7.211102550927978, 8.54400374531753, 9.055385138137417, 10.723805294763608, 13.416407864998739]
    assert over("norm(x, 2)", [2, 4, 4, 4, 5, 5, 7, 9], 4) == wanted
    assert over("variance(x)", [2], 1) == [None]


@pytest.mark.parametrize(("text", "wanted"), REGRESSION.items())
def test_g5_regression_has_the_published_values(text: str, wanted: list[object]) -> None:
    model = expression(text, ["x", "y"])
    x, y = [1, 2, 3, 4, 5, 6], [2, 3, 5, 4, 6, 9]
    rows = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    values = [model.value(rows[k : k + 4]) for k in range(3)]
    assert values == [Fraction(w) for w in wanted]  # type: ignore[arg-type]
    assert model.value([{"x": 1, "y": 2}, {"x": 1, "y": 3}]) is None or "slope" not in text


def test_g5_all_statistics_need_five_sums_and_n() -> None:
    model = expression("slope(x, y) + intercept(x, y) + r2(x, y)")
    assert sorted(str(core) for core in model.cores) == [
        "sum(1)", "sum(x)", "sum(x*y)", "sum(x^2)", "sum(y)", "sum(y^2)",
    ]  # fmt: skip


def test_g6_a_linear_ramp_is_shift_incremental() -> None:
    assert over("sum(i*x)", [1, 2, 3, 4, 5], 4) == [30, 40]
    found = expression("sum(i*x)").classification
    assert (found.kind, found.state) == (CoreKind.SHIFT_INCREMENTAL, 2)


def test_g7_a_sum_with_geometric_weights_is_shift_incremental() -> None:
    assert over("sum(0.5^(n-i) * x)", [1, 2, 3, 4, 5], 4) == [Fraction(49, 8), 8]
    found = expression("sum(0.5^(n-i) * x)").classification
    assert (found.kind, found.state) == (CoreKind.SHIFT_INCREMENTAL, 1)


def test_g8_fourier_coefficients_have_the_published_values() -> None:
    parts = {"cos": [[10, -2, -2, -2], [16, -2, -4, -2]], "sin": [[0, 2, 0, -2], [0, 4, 0, -4]]}
    for name, wanted in parts.items():
        for k in range(4):
            text = f"{'-' if name == 'sin' else ''}sum({name}(2*pi*{k}*(i-1)/4) * x)"
            values = over(text, [1, 2, 3, 4, 7], 4)
            assert values == pytest.approx([row[k] for row in wanted], abs=1e-9)
            assert expression(text).classification.kind.rank <= CoreKind.SHIFT_INCREMENTAL.rank


def test_g9_an_incremental_product_counts_zeros() -> None:
    assert over("prod(x)", [2, 0, 3, 4, 5], 3) == [0, 0, 60]
    assert slides("prod(x)", [2, 0, 3, 4, 5], 3) == [0, 0, 60]


def test_g10_a_sliding_maximum_needs_auxiliary_memory() -> None:
    assert over("max(x)", [5, 3, 4, 1, 2, 6], 3) == [5, 4, 4, 6]
    assert expression("max(x)").classification.kind is CoreKind.AUX_MEMORY


def test_g11_decay_by_age_is_incremental() -> None:
    model = expression("sum(x * 0.5^age)")
    rows = [{"x": 8}, {"x": 4}, {"x": 2}]
    assert [model.value(rows[: k + 1], range(k + 1)) for k in range(3)] == [8, 8, 6]
    assert model.classification.kind is CoreKind.INCREMENTAL


def test_g13_operators_give_the_published_vectors() -> None:
    square, successor = (lambda x: x**2), (lambda x: x + 1)
    assert merge((1, 2), (2, 3)) == (1, 2, 2, 3)
    assert merge((2, 3), (1, 2)) == (2, 3, 1, 2)
    assert filter_oldest((1, 2, 3), 1) == ((1,), (2, 3))
    assert transform((3, 4), [square, successor]) == (9, 5)
    with pytest.raises(ModelError, match="no constant tail"):
        transform((3, 4, 5), [square, successor])
    assert transform((3, 4, 5), [square, successor], lenient=True) == (9, 5, None)
    assert transform((3, 4, 5), [square, successor], tail=True) == (9, 5, 6)
    assert search_where((3, 5, 8, 2), lambda x: x % 2 == 0, first=True) == (8,)
    assert search_where((3, 5), lambda x: x % 2 == 0) == ()
    assert permute((1, 2, 3), "reverse") == (3, 2, 1)
    assert positions_of_greatest((4, 1, 4)) == (1, 3)
    assert zipped((1, 2), (3, 4)) == ((1, 3), (2, 4))
    with pytest.raises(ModelError, match="needs"):
        filter_oldest((1,), 2)
    with pytest.raises(ModelError, match="equal dimension"):
        zipped((1,), (1, 2))


def test_g15_the_incremental_graph_has_the_published_shape() -> None:
    graph = incremental_graph(expression("sum(x^2)"))
    assert {node.id for node in graph.nodes} == {
        "s", "wx", "f", "m1", "to", "tn", "ti", "m2", "m3", "ac", "wv", "g",
    }  # fmt: skip
    assert {str(edge) for edge in graph.edges} == {
        "wx.0 → f.0", "f.0 → to.0", "f.1 → m1.0", "s.0 → m1.1", "m1.0 → wx.0", "s.0 → tn.0", "to.0 → ti.0",
        "ti.0 → m2.0", "tn.0 → m2.1", "m2.0 → m3.0", "wv.0 → m3.1", "m3.0 → ac.0", "ac.0 → wv.0",
        "ac.0 → g.0",
    }  # fmt: skip
    assert (len(graph.nodes), len(graph.edges)) == (12, 14)

"""Core statistics that several models over one window share."""

from __future__ import annotations

import pytest

from slicemill.extensions.models.joint import Condition, conditions_of, joint, with_columns
from slicemill.extensions.models.model import Model, expression, shared_cores
from slicemill.extensions.models.terms import Parameter
from slicemill_lab.model.reference.catalogue import model

X, Y = Condition(Parameter("x")), Condition(Parameter("y"))


def kept(*models: Model, finite: bool = True) -> list[str]:
    return [str(each.core) for each in joint(models, finite=finite).cores]


def test_equal_core_statistics_are_stored_once() -> None:
    assert kept(expression("mean(x)"), expression("variance(x)")) == ["sum(x)", "sum(1)", "sum(x^2)"]


def test_the_number_of_stored_core_statistics_is_that_of_different_ones() -> None:
    names = (
        "mean",
        "variance",
        "skewness",
        "kurtosis",
        "slope",
        "r2",
        "correlation",
        "covariance",
        "max",
    )
    models = [model(name) for name in names]
    assert len(kept(*models)) == len(shared_cores(models)) < sum(len(one.cores) for one in models) / 3


def test_sums_of_distances_from_a_pivot_differ_from_sums_of_elements() -> None:
    found = joint([model("covariance"), model("dot")], finite=True).cores
    assert [(str(each.core), each.centred) for each in found] == [
        ("sum(1)", False), ("sum(x*y)", True), ("sum(x)", False), ("sum(y)", False), ("sum(x*y)", False),
    ]  # fmt: skip


def test_models_with_different_nullable_columns_have_different_elements() -> None:
    models = [expression("mean(x)"), expression("slope(x, y)"), expression("mean(x) + max(x)")]
    assert joint(models, finite=False).conditions == [{X}, {X, Y}, {X}]
    assert kept(*models, finite=False).count("sum(x)") == 2
    assert kept(*models).count("sum(x)") == 1


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sum(x^2*y)", {"x", "y"}),
        ("sum(log(x)^2)", {"x", "log(x)"}),
        ("sum(x/y)", {"x", "y", "x/y"}),
        ("sum(where(x > 0, x, 0))", {"x"}),
        ("sum(where(x > 0, y, 0))", {"x", "where(x > 0, y, 0)"}),
        ("sum(i*x)", {"x"}),
        ("sum(sqrt(x) + sin(y))", {"x", "sqrt(x)", "y"}),
        ("count()", set()),
    ],
)
def test_elements_of_a_model_need_values_in_all_its_terms(text: str, wanted: set[str]) -> None:
    assert {str(each.of) for each in conditions_of(expression(text))} == wanted


def test_partial_functions_separate_models() -> None:
    models = [expression("sum(log(x))"), expression("sum(x)"), expression("sum(log(x)^2) + sum(x)")]
    assert kept(*models).count("sum(x)") == 2
    assert kept(*models).count("sum(log(x))") == 1


def test_a_let_name_with_different_values_in_two_models_is_not_shared() -> None:
    about = "let m = {} in sum(abs(x - m))"
    mean, greatest, again = (expression(about.format(of)) for of in ("mean(x)", "max(x)", "mean(x)"))
    assert kept(mean, greatest, again) == [
        "sum(x)", "sum(1)", "sum(abs(-(sum(x)/n) + x))", "max(x)", "sum(abs(-max(x) + x))",
    ]  # fmt: skip


def test_each_core_statistic_lists_its_users() -> None:
    found = joint([expression("mean(x)"), expression("max(x)"), expression("n")], finite=True)
    users = {str(each.core): found.models_using(place) for place, each in enumerate(found.cores)}
    assert users == {"sum(x)": [0], "sum(1)": [0, 2], "max(x)": [1]}


def test_core_statistics_are_compared_by_columns_not_by_parameter_names() -> None:
    dot = expression("sum(x*y)")
    both = (with_columns(dot, {"x": a, "y": b}, ("p", "q")) for a, b in (("p", "q"), ("q", "p")))
    assert kept(*both) == ["sum(p*q)"]
    assert kept(with_columns(dot, {"x": "p", "y": "p"}, ("p",))) == ["sum(p^2)"]

"""Class of a model with its reason, and error messages about invalid models."""

from __future__ import annotations

import pytest

from slicemill.extensions.models.cores import CoreKind, CoreMethod
from slicemill.extensions.models.cost import cost_table, estimate, ways_table
from slicemill.extensions.models.flow import flow
from slicemill.extensions.models.formulas import CATALOGUE
from slicemill.extensions.models.model import expression, shared_cores
from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.catalogue import decaying, fourier, geometric, hann, model, norm
from slicemill_lab.model.reference.classify_flow import classify_flow

CLASSES = {
    "sum(x^2)": (CoreKind.INCREMENTAL, "uniform"),
    "prod(x)": (CoreKind.INCREMENTAL, "zeros are counted apart"),
    "all(x > 0)": (CoreKind.INCREMENTAL, "elements that are false are counted apart"),
    "xor(x)": (CoreKind.INCREMENTAL, "xor can be undone"),
    "gcd(x)": (CoreKind.TWO_STACK, "gcd cannot be undone; it is associative"),
    "max(x) - min(x)": (CoreKind.AUX_MEMORY, "a deque of candidates"),
    "median(x)": (CoreKind.AUX_MEMORY, "two heaps of the elements"),
    "sum(i^3*x)": (CoreKind.SHIFT_INCREMENTAL, "closed under shifts with 4 values"),
    "sum(0.9^j*x)": (CoreKind.SHIFT_INCREMENTAL, "closed under shifts with 1 value"),
    "sum(2^i*x)": (CoreKind.SHIFT_INCREMENTAL, "weights 1/2^j"),
    "sum(0.9^i*x)": (CoreKind.TWO_STACK, "magnify rounding errors"),
    "sum(cos(2*pi*i/16)*x)": (CoreKind.SHIFT_INCREMENTAL, "closed under shifts with 1 value"),
    "sum(exp(-age)*x)": (CoreKind.INCREMENTAL, "exponential decay by age"),
    "sum(exp(-age)*age*x)": (CoreKind.SHIFT_INCREMENTAL, "uses age"),
    "sum(exp(age)*x)": (CoreKind.BLOCKING, "uses age"),
    "sum(x/(1 + age))": (CoreKind.BLOCKING, "uses age"),
    "sum(x/i)": (
        CoreKind.BLOCKING,
        "not uniform: uses position i, and weights 1/i are not closed under shifts",
    ),
    "sum(sin(i*x))": (
        CoreKind.BLOCKING,
        "not uniform: uses position i, which cannot be told from the element",
    ),
    "sum(cos(2*pi*i/n)*x)": (CoreKind.BLOCKING, "the weight of each position changes with the dimension n"),
    "max(i*x)": (CoreKind.BLOCKING, "not uniform: uses position i"),
    "let m = mean(x) in sum((x - m)^2)": (CoreKind.INCREMENTAL, "+ can be undone"),
    "let m = mean(x) in sum(abs(x - m))": (
        CoreKind.BLOCKING,
        "known only when the window has been read once",
    ),
}
FLOWS = {
    "T[sqrt(x)] · Ac[+] · T[x^2]": CoreKind.INCREMENTAL,
    "Ac[+] · T[x] · P[sort]": CoreKind.INCREMENTAL,
    "Ac[+] · F[where x > 0]": CoreKind.INCREMENTAL,
    "Ac[+] · T[x; 2*x; …]": CoreKind.BLOCKING,
    "Ac[+] · F[oldest 2]": CoreKind.BLOCKING,
    "Ac[concat]": CoreKind.TWO_STACK,
    "Ac[concat] · P[reverse]": CoreKind.BLOCKING,
    "A[max] · T[x^2]": CoreKind.AUX_MEMORY,
    "A[first x > 0]": CoreKind.AUX_MEMORY,
    "A[max] · P[sort]": CoreKind.AUX_MEMORY,
    "A[median] · P[reverse]": CoreKind.AUX_MEMORY,
    "A[max] · F[rest 1]": CoreKind.BLOCKING,
    "A[first x > 0] · P[sort]": CoreKind.BLOCKING,
    "A[argmax] · P[sort]": CoreKind.BLOCKING,
    "A[first] · F[rest 1] · P[sort]": CoreKind.BLOCKING,
    "A[max] · T[x; 2*x; …]": CoreKind.BLOCKING,
    "Ac[+] · T[i*x]": CoreKind.SHIFT_INCREMENTAL,
    "Ac[+] · T[x/i]": CoreKind.BLOCKING,
    "Ac[+] · T[i*x] · P[sort]": CoreKind.BLOCKING,
    "Ac[+] · T[i*x] · F[where x > 0]": CoreKind.BLOCKING,
    "A[max] · T[i*x]": CoreKind.BLOCKING,
}
MISTAKES = {
    "sum(": "expected a number, a column or a function at the end",
    "sum(x": r"expected ',' or '\)' at the end, column 6",
    "sum(x) y": "expected an operator or the end before 'y', column 8",
    "sum(x) # 2": "a model has no '#', column 8",
    "median(sum(x))": "let m = sum",
    "x + 1": "x is a column, outside an aggregate it has no single value",
    "sum(x) + i": "i is a property of elements",
    "frobnicate(x)": "a model has no function frobnicate, column 1; it has abs",
    "sum(x, y)": "sum takes 1 argument, not 2",
    "where(x)": "where takes 3 arguments, not 1",
    "quantile(x, y)": "all but the first argument of quantile are numbers",
    "norm(x, 0)": "a number above 0",
    "all(x)": r"all needs a condition, as in all\(x > 0\)",
    "let n = 3 in n": "let needs a new name",
    "sum(let m = 2 in m*x)": "let m stands inside an aggregate",
}


@pytest.mark.parametrize(("text", "wanted"), CLASSES.items())
def test_a_model_has_a_class_and_a_reason(text: str, wanted: tuple[CoreKind, str]) -> None:
    found = expression(text).classification
    assert (found.kind, wanted[1] in found.reason) == (wanted[0], True), str(found)


@pytest.mark.parametrize(("text", "kind"), FLOWS.items())
def test_a_flow_has_a_class(text: str, kind: CoreKind) -> None:
    assert classify_flow(flow(text)).kind is kind


@pytest.mark.parametrize(("text", "message"), MISTAKES.items())
def test_an_error_in_a_formula_is_explained(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        expression(text)


def test_parameters_are_inferred_or_checked() -> None:
    assert expression("sum(y) + sum(x)").parameters == ("y", "x")
    assert expression("sum(x)", ["x", "y"]).parameters == ("x", "y")
    with pytest.raises(ModelError, match="uses y, but its parameters are x"):
        expression("sum(x*y)", ["x"])
    with pytest.raises(ModelError, match="name a column twice"):
        expression("sum(x)", ["x", "x"])
    with pytest.raises(ModelError, match="n means something else"):
        expression("sum(x)", ["x", "n"])


def test_positions_need_a_window_of_rows() -> None:
    with pytest.raises(ModelError, match="uses position i"):
        expression("sum(i*x)").check_window(counts_rows=False)
    expression("sum(i*x)").check_window(counts_rows=True)
    expression("sum(exp(-age)*x)").check_window(counts_rows=False)


def test_equal_core_statistics_are_shared_in_every_notation() -> None:
    assert len(expression("sum(x*y) + sum(y*x)").cores) == 1
    assert len(expression("sum(x*x) + sum(x^2) + sum(3*x^2)").cores) == 1
    assert len(expression("sum((x + y)^2) - sum((2*x + y)^2)").cores) == 3
    assert (
        len(expression("sum((x - y)^2) + sum((x - y)^2)").cores) == 1
    )  # not expanded, because expanded sums would cancel
    statistics = [model(name) for name in ("mean", "variance", "stddev", "sum_of_squares", "l2_norm", "sum")]
    assert sorted(map(str, shared_cores(statistics))) == ["sum(1)", "sum(x)", "sum(x^2)"]


def test_catalogue_models_have_their_expected_classes() -> None:
    kinds = {name: model(name).classification.kind for name in CATALOGUE}
    searching = {"l_infinity_norm", "max", "min", "range", "median"}
    assert {name for name, kind in kinds.items() if kind is CoreKind.AUX_MEMORY} == searching
    assert {name for name, kind in kinds.items() if kind is CoreKind.SHIFT_INCREMENTAL} == {"ramp_average"}
    assert CoreKind.BLOCKING not in kinds.values()
    for made in (*fourier(3, 64), hann(16), geometric("0.9")):
        assert made.classification.kind is CoreKind.SHIFT_INCREMENTAL
    assert decaying("3").classification.kind is CoreKind.INCREMENTAL
    assert norm(4).value([{"x": 2}, {"x": -1}]) == 17**0.25


def test_a_hann_window_is_stored_in_three_numbers() -> None:
    """C21: a constant and one pair of conjugate modes, for which a complex number suffices."""
    made = hann(8)
    assert sum(found.state for found in made.classes) == 2
    assert sum(len(core.weight.terms) for core in made.cores if core.weight is not None) == 2


def test_costs_of_blocking_and_incremental_models_are_estimated() -> None:
    one = estimate(expression("sum(x^2)"), n=1000)
    assert (one.blocking.transforms, one.blocking.combinations) == (1000, 999)
    assert (one.incremental.transforms, one.incremental.combinations, one.incremental.inverses) == (2, 2, 1)
    assert one.pays
    assert estimate(expression("sum(x)"), n=1000, d=399).pays
    assert not estimate(expression("sum(x)"), n=1000, d=400).pays
    table = cost_table(expression("variance(x) + max(x)"), n=100)
    assert [row[0] for row in table] == [
        "core", "sum(1)", "sum(x^2)", "sum(x)", "max(x)", "incremental", "blocking",
    ]  # fmt: skip
    assert table[4][-1] == "up to 2·n"


def test_the_table_has_the_costs_of_each_method() -> None:
    rows = {row[0]: row[1:] for row in ways_table(n=1000, d=10)}
    assert rows["blocking"][:3] == ("1000", "999", "0")
    assert rows["incremental"][:3] == ("20", "20", "10")
    assert rows["incremental, images stored"][:3] == ("10", "20", "10")
    assert rows["two stacks"][1] == "≤ 30"


@pytest.mark.parametrize(
    ("text", "ways"),
    [
        ("sum(x/i)", ["blocking"]),
        ("max(x)", ["blocking"]),
        ("gcd(x)", ["blocking", "two stacks"]),
        ("sum(i*x)", ["blocking", "shifted, 2 values"]),
    ],
)
def test_the_table_omits_methods_that_a_model_cannot_use(text: str, ways: list[str]) -> None:
    kinds = {found.kind for found in expression(text).classes}
    assert [row[0] for row in ways_table(100, 1, kinds)][1:] == ways


def test_each_core_statistic_has_its_method() -> None:
    assert [found.way for found in expression("max(x) + gcd(x) + sum(x) + first(x)").classes] == [
        CoreMethod.DEQUE, CoreMethod.TWO_STACK, CoreMethod.DELTA, CoreMethod.QUEUE,
    ]  # fmt: skip

"""The paper's letters, converted to an expression, have the value of the operators applied in order."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models.flow import flow, run, value_of
from slicemill.extensions.models.letters import from_letters, rewrite_flow
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.terms import ModelError, expression_text

FUNCTIONS = st.sampled_from(["x", "2*x", "x^2", "1 - x", "x/4 + 1", "where(x > 0, x, -x)"])
BEFORE = st.one_of(
    FUNCTIONS.map(lambda f: f"T[{f}]"),
    st.sampled_from(
        ["P[reverse]", "P[sort]", "F[where x > 0]", "F[where x^2 < 5]", "F[oldest 1]", "F[rest 1]"]
    ),
    st.tuples(FUNCTIONS, FUNCTIONS).map(lambda both: f"T[{both[0]}; {both[1]}; …]"),
)
CORES = st.sampled_from(["Ac[+]", "Ac[×]", "A[max]", "A[min]", "A[median]", "A[first]", "A[argmin]"])


@st.composite
def chains(draw: st.DrawFn, most: int = 3) -> str:
    steps = draw(st.lists(BEFORE, max_size=most))
    return " · ".join([*steps, "X"])


@st.composite
def letters(draw: st.DrawFn) -> str:
    core, post = draw(CORES), draw(st.lists(FUNCTIONS.map(lambda f: f"T[{f}]"), max_size=2))
    inner = draw(chains())
    if core.startswith("Ac") and draw(st.booleans()):
        inner = f"M({inner}, {draw(chains(2))})"
    return " · ".join([*post, core, inner])


@settings(max_examples=150, deadline=None)
@given(letters(), st.lists(st.integers(-4, 4), min_size=2, max_size=6))
def test_letters_as_an_expression_have_the_value_of_the_operators(text: str, window: list[int]) -> None:
    try:
        found = from_letters(text)
    except ModelError:
        return  # Rejected letters are tested below.
    model = expression(expression_text(found.expr), ["x"])
    wanted = value_of(str(flow(text)), window)
    assert model.value([{"x": value} for value in window]) == wanted


@settings(max_examples=100, deadline=None)
@given(letters(), st.lists(st.integers(-4, 4), min_size=2, max_size=6))
def test_rewrite_rules_change_no_value(text: str, window: list[int]) -> None:
    plain = flow(text)
    changed, rules = rewrite_flow(plain)
    try:
        wanted = run(plain, {"X": window})
    except ModelError:  # F takes more elements than its filter has left.
        return
    assert run(changed, {"X": window}) == wanted
    assert bool(rules) == (changed != plain)


@pytest.mark.parametrize(
    ("text", "said", "rules"),
    [
        ("T[sqrt(x)] · Ac[+] · T[x^2]", "sqrt(sum(x^2))", ()),
        ("Ac[+] · T[x^2] · T[x - 1]", "sum((x - 1)^2)", ("R1",)),
        ("Ac[×] · F[where x <> 0]", "prod(where(x <> 0, x, 1))", ("R8",)),
        ("A[max] · T[-x]", "-min(x)", ("R7",)),
        ("Ac[+] · T[2*x] · M(X, X)", "2*(sum(x) + sum(x))", ("R10", "R2", "R3")),
        ("Ac[+] · T[3*(x - 1)^2]", "3*sum((x - 1)^2)", ("R10",)),
        ("Ac[+] · T[(2*x - 1)^2]", "sum((2*x - 1)^2)", ()),
        ("Ac[+] · F[oldest 2] · T[x^2]", "sum(where(i <= 2, x^2, 0))", ("R4",)),
        ("Ac[and] · T[x > 0]", "all(x > 0)", ()),
        ("Ac[+] · T[x; 0; …]", "sum(where(i = 1, x, 0))", ()),
    ],
)
def test_letters_are_converted_to_expressions(text: str, said: str, rules: tuple[str, ...]) -> None:
    found = from_letters(text)
    assert (expression_text(found.expr), found.rules) == (said, rules)


def test_letters_can_use_another_name_for_the_elements() -> None:
    model = expression(expression_text(from_letters("Ac[+] · T[x^2]", ["price"]).expr))
    assert model.value([{"price": 2}, {"price": 3}]) == Fraction(13)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("T[x^2]", "gives a vector"),
        ("A[where x > 0]", "gives a vector"),
        ("Ac[concat]", "gives no number"),
        ("Ac[+] · T[x; x^2]", "no function for longer windows"),
        ("Ac[+] · Y", "there is no vector Y"),
        ("A[lag] · P[reverse]", "needs a number"),
        ("A[first] · P[upside]", "P has no order upside"),
        ("A[first] · P[reverse] · T[i*x]", "i means nothing in T"),
        ("A[first] · F[where x > y]", "y means nothing in F"),
        ("Ac[+] · " + "T[x; 2*x; …] · " * 2000 + "X", "too many letters"),
    ],
)
def test_letters_without_a_value_are_rejected_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        from_letters(text)

"""CREATE MODEL: equal to a model from Python, and a position for every error."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder import bind
from slicemill.binder.script import bind_script
from slicemill.extensions.models.definition import PREDEFINED
from slicemill.extensions.models.model import Nulls, expression
from slicemill.sql.errors import SourceText, TextSpan

TEXT = (
    "x y z n i j age pi sum mean max median norm quantile all let m = in ( ) ( ) , + - * / ^ % < > <= "
    "and or not 1 2.5 1e3 sqrt log where foo $ ' \" -- /* */ { } : . [ ] SELECT \n"
)
WORDS = TEXT.split(" ")


@settings(max_examples=60)
@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=14))
def test_a_random_formula_is_a_model_or_an_error_with_a_position(words: list[str]) -> None:
    text = f"CREATE MODEL m(x REAL, y REAL) AS {' '.join(words)}"
    bound = bind_script(SourceText(text))
    assert bound.statements or bound.diagnostics
    for found in bound.diagnostics:
        assert 0 <= found.span.start <= found.span.end <= len(text)


@pytest.mark.parametrize(
    "text", ["sum(x*y)/n", "let m = mean(x) in sum((x - m)^2)", "sum(0.5^j*x)", "all(x > y)"]
)
def test_a_model_in_esl_equals_the_model_from_python(text: str) -> None:
    made = (
        bind(f"CREATE MODEL f(x REAL, y REAL) WITH (nulls = 'poison') AS {text}").catalog.callables["f"].model
    )
    assert made == expression(text, ("x", "y"), nulls=Nulls.POISON)


def test_case_comments_and_line_breaks_do_not_matter() -> None:
    written = "CREATE MODEL F(Price REAL) AS LET M = Mean(PRICE) -- the middle\n IN SUM((price - M)^2)/N"
    made = bind(written).catalog.callables["f"].model
    assert made.parameters == ("Price",)
    assert made.text == "let m = mean(Price) in sum((Price - m)^2)/n"


def test_an_error_position_is_correct_after_comments_and_line_breaks() -> None:
    text = "CREATE MODEL f(x REAL) AS\n  sum(x) /* all\n of it */ +\n  summ(x)"
    (found,) = bind_script(SourceText(text)).diagnostics
    assert found.span == TextSpan(text.index("summ"), text.index("summ") + 4)


def test_predefined_models_are_documented_and_can_be_called() -> None:
    page = (Path(__file__).parents[2] / "docs" / "model.md").read_text(encoding="utf-8")
    for name, text in PREDEFINED.items():
        assert f"`{name}`" in page
        arguments = ", ".join(expression(text).parameters)
        bind(f"CREATE STREAM s(x real, y real); SELECT {name}({arguments}) OVER (ROWS 9 PRECEDING) FROM s")


def test_the_name_of_a_dropped_model_can_be_reused() -> None:
    catalog = bind("CREATE MODEL f(x REAL) AS sum(x); DROP MODEL f; CREATE MODEL f(y REAL) AS max(y)").catalog
    assert catalog.callables["f"].model.text == "max(y)"
    assert bind("DROP MODEL f", catalog).catalog.aggregates("f") == (None, None)
    assert "f" in catalog.callables, "catalogs are not changed by a script"

"""Letters on the engine: F, M, P and searches give the values of the pure operators (C4-C9)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aggregate.compiler.comparing import call_of, over, tuples_of
from model.test_letters import letters
from slicemill.aggregates.udf.compiler.layout import PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.extensions.models.flow import flow, value_of
from slicemill.extensions.models.letters import from_letters
from slicemill.extensions.models.terms import ModelError
from slicemill.functions.vectors import to_values
from slicemill.time import END
from slicemill.types import DOUBLE
from support.engine import Clock, fed_mill, feed_rows, finish, inline_pool

SECOND = 1_000_000
NO_EXPRESSION = {
    "second_least": "A[first] · F[rest 1] · P[sort]",
    "ends": "Ac[+] · M(F[oldest 1], F[oldest 1] · P[reverse])",
    "greatest_positive": "A[max] · F[where x > 0]",
    "mirrored": "A[argmin] · M(P[rotate], P[reverse])",
    "first_negative": "T[-x] · A[first x < 0]",
    "of_three": "A[median] · M(Ac[+], M(A[max], A[min]))",
    "roots": "Ac[×] · T[sqrt(x)] · F[oldest 1] · P[sort]",
    "odd": "Ac[gcd] · A[where x % 2 <> 0]",
    "weighted": "Ac[+] · T[3*x; 2*x; x; …] · P[sort]",
}


@pytest.mark.parametrize("text", NO_EXPRESSION.values())
def test_some_letters_have_no_form_as_an_expression(text: str) -> None:
    assert "·" in repr(from_letters(text).expr)


@settings(max_examples=60, deadline=None)
@given(letters(), st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=9), st.integers(0, 4))
@example("A[first] · F[rest 1] · P[sort]", [1.0, 2.0], 2)
@example("A[max] · T[1/x] · P[reverse] · M(X, F[oldest 1])", [1.0, 0.0, 2.0], 1)
def test_compiled_letters_have_the_values_of_the_pure_operators(
    text: str, values: list[float], back: int
) -> None:
    try:
        found = from_letters(text).expr
    except ModelError:
        return
    if "·" not in repr(found):
        return  # Other tests cover letters with a form as an expression.
    catalog = bind(f"CREATE MODEL f(x REAL) AS {text};").catalog
    uda = prepare(call_of(catalog, "f", [DOUBLE], over("ROWS", back)), catalog, forms=(PYTHON,))
    rows = [(place, 0, value) for place, value in enumerate(values)]
    answers = to_values(uda.run(uda.start(), tuples_of(rows, [DOUBLE]), END).columns[0], len(rows))
    for place, answer in enumerate(answers):
        wanted = value_of(str(flow(text)), values[max(0, place - back) : place + 1])
        assert answer == (None if wanted is None else pytest.approx(float(wanted), rel=1e-12)), place


def test_letters_run_as_queries(tmp_path: Path) -> None:
    values = [3.0, -1.0, 4.0, 1.0, -5.0, 9.0, 2.0, 6.0]
    chosen = {name: NO_EXPRESSION[name] for name in ("second_least", "odd")}
    models = "".join(f"CREATE MODEL {name}(x REAL) AS {text};\n" for name, text in chosen.items())
    calls = ", ".join(f"{name}(v) OVER (ROWS 3 PRECEDING) AS {name}" for name in chosen)
    mill = fed_mill(tmp_path, Clock(), inline_pool())
    try:
        mill.execute(f"CREATE STREAM s (v real, ts timestamp) ORDER BY ts;\n{models}")
        query = mill.query(f"SELECT {calls} FROM s")
        mill.open()
        feed_rows(mill, "s", [(value, place * SECOND) for place, value in enumerate(values)])
        finish(mill)
        rows = [timed.row for timed in query.rows()]
    finally:
        mill.close()
    for place, row in enumerate(rows):
        window = values[max(0, place - 3) : place + 1]
        wanted = [value_of(text, window) for text in chosen.values()]
        assert row == tuple(None if v is None else pytest.approx(float(v)) for v in wanted)
    assert len(rows) == len(values)

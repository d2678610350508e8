"""Declared ranges of arguments of functions and aggregates, and the rejection of constants outside."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.catalog.builtin_aggregates import BUILTINS
from slicemill.extensions.models.operators import SEARCHES
from slicemill.functions.signatures import SCALARS
from slicemill.sql.errors import EslError

STREAM = "CREATE STREAM s (x double, k int, t varchar, ts timestamp) ORDER BY ts;"


def test_every_integer_parameter_has_a_range() -> None:
    for signature in SCALARS.values():
        for word, range_ in zip(signature.parameters, signature.ranges, strict=True):
            assert range_ is not None or word not in ("int", "integer", "places"), signature.name


@pytest.mark.parametrize(
    ("call", "column", "hint"),
    [
        ("quantile(x, 1.5) OVER (ROWS 3 PRECEDING)", 20, "0.5 is the median"),
        ("percentile(x, -0.1) OVER (ROWS 3 PRECEDING)", 22, "0.5 is the median"),
        ("percentile(x, x) OVER (ROWS 3 PRECEDING)", 22, "the same for all tuples"),
        ("round(x, 5000)", 17, "the nearest is 400"),
        ("repeat(t, 2000000000)", 18, "the nearest is 100000000"),
        ("lpad(t, 2000000000, 'a')", 16, "the nearest is 100000000"),
        ("split_part(t, ',', 0)", 27, "1"),
        ("sha2(t, 257)", 16, "256"),
        ("date_trunc('hourr', ts)", 19, "hour"),
        ("make_date(2026, 13, 1)", 24, "the nearest is 12"),
        ("regexp_extract(t, '(a', 1)", 26, "missing )"),
        ("regexp_extract(t, '(a)', -1)", 33, "the nearest is 0"),
        ("t RLIKE '['", 16, "unterminated"),
        ("t LIKE 'a\\b'", 15, "escape character"),
        ("date_format(ts, 'yyyy-nn')", 24, "'nn' is not supported"),
    ],
)
def test_constants_out_of_range_are_rejected_at_their_position(call: str, column: int, hint: str) -> None:
    with pytest.raises(EslError) as refused:
        bind(f"{STREAM}\nSELECT {call} FROM s;")
    (mistake,) = refused.value.diagnostics
    assert refused.value.source.position(mistake.span.start) == (2, column)
    assert hint in (mistake.hint or "")


@pytest.mark.parametrize(
    ("formula", "place"),
    [("quantile(x, 1.5)", "1.5"), ("quantile(x, -0.5)", "-"), ("quantile(x, 0.12345678912)", "0.12"),
     ("topk(x, 0)", "0"), ("topk(x, -1)", "-"), ("topk(x, 1.5)", "1.5"), ("topk(x, 99999999999)", "99"),
     ("norm(x, 0)", "0"), ("norm(x, 1e9)", "1e9")],
)  # fmt: skip
def test_constants_of_models_out_of_range_are_rejected_at_their_position(formula: str, place: str) -> None:
    text = f"CREATE MODEL m(x REAL) AS {formula};"
    with pytest.raises(EslError) as refused:
        bind(text)
    (mistake,) = refused.value.diagnostics
    assert mistake.span.start == text.index(place, text.index(","))
    assert mistake.hint


def test_constants_in_range_are_accepted() -> None:
    calls = [
        "quantile(x, 0) OVER (ROWS 3 PRECEDING)",
        "quantile(x, 1) OVER (ROWS 3 PRECEDING)",
        "round(x, -400)",
        "split_part(t, ',', -1)",
        "sha2(t, NULL)",
        "date_trunc('YYYY', ts)",
        "make_date(k, k, k)",
    ]
    bind(f"{STREAM} SELECT {', '.join(f'{call} AS c{n}' for n, call in enumerate(calls))} FROM s;")
    bind("CREATE MODEL m(x REAL) AS quantile(x, 0) + quantile(x, 1) + topk(x, 1) + norm(x, 0.5);")


def test_constants_of_aggregates_and_searches_have_ranges() -> None:
    assert {name for name, builtin in BUILTINS.items() if builtin.constant is not None} == {
        "percentile", "quantile", "listagg", "string_agg", "nth_value",
    }  # fmt: skip
    assert {name for name, search in SEARCHES.items() if search.options} == {
        "lag", "quantile", "topk",
    }  # fmt: skip

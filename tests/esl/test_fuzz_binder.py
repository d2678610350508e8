"""Fuzz test of the binder: every text gives statements or an EslError."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.binder.script import bind_script
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.sql.errors import SourceText, render

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    (ROOT / "examples" / "auction.esl").read_text(encoding="utf-8"),
    *(
        path.read_text(encoding="utf-8").split("== esl\n")[-1].split("\n== ")[0]
        for path in sorted((ROOT / "tests" / "corpus").glob("**/*.test"))
    ),
]
# Words with a meaning for the binder, so that mutations reach deep into it.
VOCABULARY = """
    a b price ts auction bid person category x NULL 1 0 -1 2.5 'x' '2026-01-01' * ( ) , . ; = < + - / || [ ]
    SELECT FROM WHERE GROUP BY HAVING OVER PARTITION ROWS RANGE PRECEDING UNBOUNDED SLIDE SECONDS MINUTE
    MONTH ACTIVE EXPIRATION JOIN LEFT ON UNION AS CAST CASE WHEN THEN END IN LIKE EXISTS VALID oldest inwindow
    count sum avg min max median upper length abs coalesce now window_end RETURN INSERT INTO VALUES UPDATE SET
    DELETE INTERVAL DURING TIMESTAMP int varchar real DISTINCT LIMIT ORDER WITH WINDOW
""".split()  # noqa: SIM905


def answers_cleanly(text: str) -> None:
    bound = bind_script(SourceText(text))
    for diagnostic in bound.diagnostics:
        assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
        assert diagnostic.message
        render(bound.source, diagnostic)
    optimize(build_graph(bound.catalog))


def mutated(text: str, chooser: random.Random) -> str:
    words = [match.span() for match in re.finditer(r"\w+|\S", text)]
    for _ in range(chooser.randint(1, 4)):
        start, end = chooser.choice(words)
        replacement = chooser.choice([*VOCABULARY, ""])
        other = chooser.choice(words)
        if chooser.random() < 0.3:
            replacement = text[other[0] : other[1]]
        text = f"{text[:start]}{' ' if replacement else ''}{replacement}{text[end:]}"
        words = [(s, e) for s, e in words if e <= min(start, len(text))] or [(0, min(1, len(text)))]
    return text


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_unchanged_script_binds_or_raises_an_esl_error(script: str) -> None:
    answers_cleanly(script)


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32))
def test_a_mutated_script_binds_or_raises_an_esl_error(seed: int) -> None:
    chooser = random.Random(seed)
    answers_cleanly(mutated(chooser.choice(SCRIPTS), chooser))


@settings(max_examples=200)
@given(words=st.lists(st.sampled_from(VOCABULARY), max_size=25))
def test_random_words_of_the_language_bind_or_raise_an_esl_error(words: list[str]) -> None:
    answers_cleanly(
        "CREATE STREAM bid(auction int, price real, ts timestamp) ORDER BY ts;"
        "CREATE STREAM person(a int, b varchar); CREATE TABLE category(x int, y varchar);"
        f"SELECT {' '.join(words)}"
    )

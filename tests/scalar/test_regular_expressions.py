"""Regular expressions: RE2 against a backtracking engine, and the time limit of patterns without RE2 form."""

from __future__ import annotations

import random
import re
import time

import pytest

from slicemill.functions.patterns import _like_row, _regexp_like, _regexp_replace
from slicemill.functions.regular_expressions import _translate, java_pattern
from slicemill.functions.values import ExpressionError

_ATOMS = [
    *"abcé\n",
    r"\d",
    r"\s",
    r"\w",
    ".",
    "[^a]",
    "[a-c]",
    r"\b",
    "^",
    "$",
    r"\.",
    r"[^\d]",
    r"\W",
    r"\Z",
]
_REPEATS = ["*", "+", "?", "*?", "+?", "??", "{1,2}"]


def _random_pattern(choices: random.Random, depth: int) -> str:
    kind = choices.random()
    if depth == 0 or kind < 0.4:
        return choices.choice(_ATOMS)
    if kind < 0.6:
        return _random_pattern(choices, depth - 1) + _random_pattern(choices, depth - 1)
    if kind < 0.8:
        either = f"{_random_pattern(choices, depth - 1)}|{_random_pattern(choices, depth - 1)}"
        return f"{choices.choice(['(', '(?:'])}{either})"
    if kind < 0.95:
        return f"(?:{_random_pattern(choices, depth - 1)}){choices.choice(_REPEATS)}"
    return f"({_random_pattern(choices, depth - 1)})"


def _spans_by_backtracking(pattern: str, text: str) -> list[tuple[tuple[int, int], ...]]:
    """Return the matches of Java's `find`: after an empty match it continues with the next character."""
    compiled = re.compile(_translate(pattern), re.ASCII)
    spans, place = [], 0
    while place <= len(text) and (found := compiled.search(text, place)) is not None:
        spans.append(tuple(found.span(number) for number in range(compiled.groups + 1)))
        place = found.end() + (found.start() == found.end())
    return spans


def test_re2_finds_the_matches_of_a_backtracking_engine() -> None:
    choices, linear = random.Random(8), 0
    for _ in range(2_000):
        pattern = choices.choice(["", "", "", "(?i)"]) + _random_pattern(choices, 4)
        compiled = java_pattern(pattern)
        linear += compiled.is_linear
        for _ in range(3 if compiled.is_linear else 0):
            text = "".join(choices.choice("aabbcABK1 é\n\r.") for _ in range(choices.randrange(7)))
            found = [match.spans for match in compiled.matches(text)]
            assert found == _spans_by_backtracking(pattern, text), (pattern, text)
    assert linear > 1_500


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a|a)*b", "a" * 5_000),
        ("(a*)*b", "a" * 5_000),
        ("((a|a)*)*b", "a" * 5_000),
        ("(x+x+)+y", "x" * 5_000),
        (r"\A(\w+\s?)*$", "word " * 1_000 + "!"),
        ("(?i)(A|a)*c$", "a" * 5_000),
    ],
)
def test_a_pattern_with_exponential_backtracking_takes_linear_time(pattern: str, text: str) -> None:
    began = time.process_time()
    assert not _regexp_like(text, pattern)
    _regexp_replace(text, pattern, "")
    # Backtracking would try two ways for each letter, and would not end.
    assert time.process_time() - began < 5


def test_a_pattern_without_linear_form_has_a_time_limit() -> None:
    pattern = r"(?=a)(a|a)*\1$"
    assert not java_pattern(pattern).is_linear
    with pytest.raises(ExpressionError, match="took more than 1 s on one text of 41 characters"):
        _regexp_like("a" * 40 + "c", pattern)
    began = time.process_time()
    for _ in range(100):  # Further rows are rejected at once.
        with pytest.raises(ExpressionError, match="took more than 1 s"):
            _regexp_like("a" * 40 + "c", pattern)
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"(?<=a)b", "ab", ["b"]),
        (r"(a)\1", "aab", ["aa"]),
        (r"(?=.*\d)\w{3,}", "ab1", ["ab1"]),
        (r"(a$)|b", "ba\n", ["b", "a"]),
        (r"$", "a\n", ["", ""]),
        (r"a$\n", "a\n", ["a\n"]),
        (r"\x{1}", "", None),
    ],
)
def test_patterns_without_linear_form_match(pattern: str, text: str | None, found: list[str] | None) -> None:
    if found is None:
        with pytest.raises(ExpressionError, match="no regular expression that is supported"):
            java_pattern(pattern)
    else:
        assert [match.group(0) for match in java_pattern(pattern).matches(text)] == found


def test_a_deeply_nested_pattern_is_rejected() -> None:
    with pytest.raises(ExpressionError, match="no regular expression that is supported"):
        java_pattern("(" * 5_000 + ")" * 5_000)


def test_like_with_many_wildcards_takes_linear_time() -> None:
    began = time.process_time()
    assert not _like_row("a" * 20_000, "%a" * 40 + "%b")
    assert _like_row("a" * 20_000 + "b", "%a" * 40 + "%b")
    assert time.process_time() - began < 2


def test_like_matches_like_the_equivalent_regular_expression() -> None:
    choices = random.Random(3)
    for _ in range(3_000):
        pattern = "".join(choices.choice("ab%_") for _ in range(choices.randrange(7)))
        text = "".join(choices.choice("ab\n") for _ in range(choices.randrange(8)))
        expression = "".join({"%": ".*", "_": "."}.get(letter, letter) for letter in pattern)
        wanted = re.fullmatch(expression, text, re.DOTALL) is not None
        assert _like_row(text, pattern) is wanted, (pattern, text)

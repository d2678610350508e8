"""Printing and parsing are inverse, over every line of the fixture files."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from slicemill.sql.dialect import parse, to_esl

FIXTURES = Path(__file__).parent / "fixtures"


def statements() -> list[str]:
    lines = (FIXTURES / "statements.esl").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("--")]


def spellings() -> list[tuple[str, str]]:
    """Return pairs of blocks separated by a blank line: a user's text, and the canonical text."""
    blocks = (FIXTURES / "spellings.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return list(zip(blocks[::2], blocks[1::2], strict=True))


@pytest.mark.parametrize("text", statements())
def test_a_canonical_statement_prints_as_itself(text: str) -> None:
    (tree,) = parse(text)
    assert to_esl(tree) == text


@pytest.mark.parametrize("text", statements())
def test_pretty_text_parses_to_the_same_tree(text: str) -> None:
    (tree,) = parse(text)
    (again,) = parse(to_esl(tree, pretty=True))
    assert again == tree
    assert to_esl(again) == text


@pytest.mark.parametrize("text", statements())
def test_sqlglot_reads_and_writes_esl_as_a_dialect(text: str) -> None:
    assert sqlglot.parse_one(text, read="esl").sql("esl") == text


@pytest.mark.parametrize(("written", "canonical"), spellings())
def test_other_spellings_print_canonically(written: str, canonical: str) -> None:
    (tree,) = parse(written)
    assert to_esl(tree) == canonical
    assert parse(canonical) == [tree]


def test_statements_of_a_script_parse_as_they_do_alone() -> None:
    assert parse(";\n".join(statements())) == [parse(text)[0] for text in statements()]


def test_printing_does_not_change_the_tree() -> None:
    for text in statements():
        (tree,) = parse(text)
        before = repr(tree)
        to_esl(tree, pretty=True)
        assert repr(tree) == before


def test_a_closing_brace_ends_a_statement_without_a_semicolon() -> None:
    aggregate = "CREATE AGGREGATE f(x INT) : INT { }\n"
    assert len(parse(aggregate + aggregate + "SELECT a FROM s")) == 3


def test_the_fixture_covers_the_language_widely() -> None:
    assert len(statements()) >= 330

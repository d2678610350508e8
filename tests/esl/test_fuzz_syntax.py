"""Fuzz test of the parser: every text gives trees that survive printing and parsing, or an EslError."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.sql.dialect import parse, to_esl
from slicemill.sql.errors import EslError

FIXTURE = Path(__file__).parent / "fixtures" / "statements.esl"
STATEMENTS = [
    line for line in FIXTURE.read_text(encoding="utf-8").splitlines() if line and not line.startswith("--")
]

# Names, numbers, strings and symbols, with the blanks between them.
LEXEMES = re.compile(r"\s+|\w+|'[^']*'|\"[^\"]*\"|<=>|<=|>=|<>|!=|::|\|\||.", re.DOTALL)

KEYWORDS = """
    ACTIVE AFTER AGGREGATE ALGEBRAIC ALL AND AS ASC BEFORE BETWEEN BY CASE CAST CREATE CROSS CURRENT DELETE
    DESC DISTINCT DIV DROP DURING ELSE END ESCAPE EXISTS EXPIRATION EXPIRE EXTRACT FALSE FOLLOWING FROM FULL
    GROUP HAVING ILIKE IN INITIALIZE INNER INSERT INTERVAL INTO IS ITERATE JOIN LANGUAGE LEFT LIKE LIMIT MEETS
    MET NOT NULL ON OPTIONS OR ORDER OVER PARTITION PRECEDING PYTHON QUERY RANGE RETURN RETURNS RIGHT RLIKE
    ROW ROWS SELECT SET SKEW SLACK SLIDE SLIDES SOURCE STREAM TABLE TERMINATE THEN TRUE TRY_CAST UNBOUNDED
    UNION UPDATE USING VALUES VIEW WHEN WHERE WINDOW WITH
"""
SYMBOLS = r"""
    ( ) [ ] { } , ; : . * + - / % & | ^ ~ = == <> != < > <= >= <=> => || :: ! ? @ # $ \ -- /* */ {# #} ' " `
"""
LITERALS = """
    0 1 5 10 1.5 .5 1. 1e3 1e 0x1F 1_000 007 'text' '' 'it''s' '5' '5_minutes' '-1' "name" "a""b" "" `tick`
    N'x' DATE TIMESTAMP INT DECIMAL CHAR SECOND MINUTES MIN HOURS MONTH
"""
NAMES = "a b s price Bid inwindow oldest VALID count größe 価格 ß ı ﬁ x² a€ é 🙂 _ a$"
ODD_CHARACTERS = ["\n", "\r", "\t", "\u200b", "\xa0", "\x00", "\ud7ff", "\ufeff"]

VOCABULARY = [*(KEYWORDS + SYMBOLS + LITERALS + NAMES).split(), "'5 minutes'", '"a b"', *ODD_CHARACTERS]
words = st.sampled_from(VOCABULARY)
blanks = st.sampled_from([" ", " ", " ", "", "\n", "  -- comment\n", " /* comment */ "])
soup = st.lists(st.tuples(words, blanks), max_size=30).map(lambda pairs: "".join(w + b for w, b in pairs))


@st.composite
def mutated_statements(draw: st.DrawFn) -> str:
    """Draw one or two valid statements with a few changed lexemes, possibly truncated."""
    text = ";\n".join(draw(st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=2)))
    lexemes = LEXEMES.findall(text)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lexemes) - 1))
        match draw(st.sampled_from(["delete", "double", "swap", "insert", "replace"])):
            case "delete" if len(lexemes) > 1:
                del lexemes[place]
            case "double":
                lexemes.insert(place, lexemes[place])
            case "swap":
                other = draw(st.integers(0, len(lexemes) - 1))
                lexemes[place], lexemes[other] = lexemes[other], lexemes[place]
            case "insert":
                lexemes.insert(place, f" {draw(words)} ")
            case _:
                lexemes[place] = draw(words)
    text = "".join(lexemes)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


def check(text: str) -> None:
    """Check that the text parses, prints and parses again, or raises an EslError."""
    try:
        trees = parse(text)
    except EslError as error:
        assert error.diagnostics
        for diagnostic in error.diagnostics:
            assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(text)
            assert diagnostic.message
        assert len({d.span.start for d in error.diagnostics}) == len(error.diagnostics)
        return
    for pretty in (False, True):
        printed = ";\n".join(to_esl(tree, pretty) for tree in trees)
        again = parse(printed)
        assert again == trees, printed
        assert [to_esl(tree) for tree in again] == [to_esl(tree) for tree in trees]


@settings(max_examples=300)
@given(soup)
# A quoted name before a parenthesis is a function name and keeps its quotes.
@example('SELECT "a b"(1) FROM s')
# sqlglot reads Jinja comments in every dialect.
@example("SELECT {# open")
@example("SELECT {# closed #} a FROM s")
# A semicolon in a string does not end a statement, neither before an open quote nor after an error.
@example("SELECT ';' , 'open")
@example("SELECT FROM ';' ; SELECT a FROM s")
# Not numbers: they would print differently, or fail when they are read as a number later.
@example("SELECT 1e FROM s")
@example("SELECT .1.5 FROM s")
@example("SELECT 5 .a FROM s")
# The sign of an interval stays inside its quotes.
@example("SELECT INTERVAL '-5' MINUTE FROM s")
@example("SELECT N'select' FROM s")
# Upper case and lower case are no inverses in Unicode.
@example("SELECT CAST(a AS ß) FROM s")
@example("SELECT EXTRACT(ß FROM a) FROM s")
def test_random_tokens_parse_or_raise_an_esl_error(text: str) -> None:
    check(text)


@settings(max_examples=300)
@given(mutated_statements())
# NOT IN prints as NOT … IN, which would include a comparison after it.
@example("SELECT a FROM s WHERE a NOT IN (1) = b")
@example("SELECT a FROM s WHERE a IS NULL IS NULL")
# The option name stays a string.
@example("CREATE STREAM s (a INT) USING csv OPTIONS (\"odd name\".x = 1, 'y' = 2)")
# Windows of rows that slide by time, and vice versa.
@example("SELECT a FROM Stream(a) RANGE 500 ROWS SLIDES 1 MINUTE")
@example("SELECT a FROM Stream(a) RANGE 5 MINUTES SLIDES 1 ROWS")
@example('CREATE STREAM s (a "odd type")')
@example('SELECT EXTRACT("odd field" FROM a) FROM s')
def test_a_mutated_statement_parses_or_raises_an_esl_error(text: str) -> None:
    check(text)


@settings(max_examples=100)
@given(st.text(max_size=40))
def test_any_text_parses_or_raises_an_esl_error(text: str) -> None:
    check(text)


@settings(max_examples=100)
@given(soup)
def test_any_select_list_parses_or_raises_an_esl_error(text: str) -> None:
    check(f"SELECT {text} FROM s")


NESTED = {
    "parentheses": ("SELECT ", "(", "a", ")", " FROM s"),
    "unclosed parentheses": ("SELECT ", "(", "a", "", " FROM s"),
    "negations": ("SELECT a FROM s WHERE ", "NOT ", "a", "", ""),
    "signs": ("SELECT ", "- ", "a", "", " FROM s"),
    "calls": ("SELECT ", "f(", "a", ")", " FROM s"),
    "windows": ("SELECT ", "f(a) OVER (PARTITION BY ", "a", ")", " FROM s"),
    "cases": ("SELECT ", "CASE WHEN a THEN ", "a", " END", " FROM s"),
    "casts": ("SELECT ", "CAST(", "a", " AS INT)", " FROM s"),
    "short casts": ("SELECT ", "", "a", "::INT", " FROM s"),
    "short casts in parentheses": ("SELECT ", "(", "a", ")::INT", " FROM s"),
    "sub-queries in FROM": ("", "SELECT a FROM (", "SELECT a FROM s", ")", ""),
    "sub-queries in WHERE": ("", "SELECT a FROM s WHERE a IN (", "SELECT a FROM s", ")", ""),
    "scalar sub-queries": ("SELECT ", "(SELECT ", "a", " FROM s)", " FROM s"),
    "definitions": ("", "WITH w AS (", "SELECT a FROM s", ") SELECT a FROM w", ""),
    "unions to the right": ("", "SELECT a FROM s UNION (", "SELECT a FROM s", ")", ""),
    "unions to the left": ("SELECT a FROM s", "", "", " UNION SELECT a FROM s", ""),
    "sums and differences": ("SELECT a", "", "", " + a - a", " FROM s"),
    "products in parentheses": ("SELECT ", "(a * ", "a", ")", " FROM s"),
    "comments": ("SELECT a FROM s ", "/*", " ", "*/", ""),
    "braces": ("CREATE AGGREGATE f(x INT) : INT ", "{", " ", "}", ""),
}


@pytest.mark.parametrize("depth", [39, 40, 100, 2000])
@pytest.mark.parametrize("form", NESTED)
def test_deep_nesting_parses_or_raises_an_esl_error(form: str, depth: int) -> None:
    before, opening, middle, closing, after = NESTED[form]
    check(before + opening * depth + middle + closing * depth + after)


@pytest.mark.parametrize("form", NESTED)
def test_nesting_limits_leave_stack_space_for_a_deep_caller(form: str) -> None:
    def called_from(frames: int, text: str) -> None:
        called_from(frames - 1, text) if frames else check(text)

    before, opening, middle, closing, after = NESTED[form]
    for depth in (38, 70, 140):
        called_from(200, before + opening * depth + middle + closing * depth + after)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a" + ", a" * 1000 + " FROM s",
        "SELECT a FROM s" + ", s" * 1000,
        "SELECT a FROM s" + " JOIN s ON a = b" * 500,
        "SELECT a FROM s WHERE a = 0" + " OR a = 1 AND b = 2" * 500,
        "SELECT a FROM s WHERE a IN (0" + ", 1" * 1000 + ")",
        "SELECT CASE" + " WHEN a THEN b" * 500 + " END FROM s",
        "SELECT f(a" + ", a" * 1000 + ") FROM s",
        "CREATE STREAM s (a INT" + ", a INT" * 1000 + ")",
        "CREATE AGGREGATE f(x INT) : INT { ITERATE: { " + "DELETE FROM t; " * 500 + "} }",
        "SELECT a FROM s; " * 500,
    ],
)
def test_long_lists_parse(text: str) -> None:
    assert parse(text)
    check(text)


def test_every_error_of_a_long_file_is_reported() -> None:
    with pytest.raises(EslError) as raised:
        parse("SELECT a FROM s;\nSELECT FROM s;\n" * 500)
    assert len(raised.value.diagnostics) == 500

"""Full error messages of the parser, word for word.

A case in the fixture is ESL text, a line of tildes and the full error; a line of equals signs ends it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlglot

from slicemill.sql.dialect import parse
from slicemill.sql.errors import EslError, SourceText

FIXTURE = Path(__file__).parent / "fixtures" / "syntax_errors.txt"


def cases() -> list[tuple[str, str]]:
    blocks = FIXTURE.read_text(encoding="utf-8").removesuffix("\n").split("\n====\n")
    return [(text, error) for text, error in (block.split("\n~~~\n") for block in blocks)]


@pytest.mark.parametrize(("text", "error"), cases())
def test_a_syntax_error_has_a_position_and_a_remedy(text: str, error: str) -> None:
    with pytest.raises(EslError) as raised:
        parse(text)
    assert str(raised.value) == error


@pytest.mark.parametrize("text", [text for text, _ in cases() if "\n" not in text])
def test_an_error_inside_a_script_is_the_only_reported_error(text: str) -> None:
    alone = _messages(text)
    before = "SELECT a FROM s;\nCREATE STREAM t (a INT);\n"
    after = "\n;\nSELECT b FROM t;\nCREATE AGGREGATE f(x INT) : INT { };\nDROP STREAM t"
    within = _messages(before + text + after)
    # The message names the end of the text, or the next token within a script.
    assert len(within) == len(alone) == 1
    if "never closed" not in alone[0]:
        assert ("the text ends here" in alone[0]) or within == alone


def _messages(text: str) -> list[str]:
    with pytest.raises(EslError) as raised:
        parse(text)
    return [diagnostic.message for diagnostic in raised.value.diagnostics]


def test_an_error_position_names_the_file() -> None:
    with pytest.raises(EslError, match=r"^bids\.esl:2:8: error: "):
        parse(SourceText("SELECT a FROM s;\nSELECT FROM s", "bids.esl"))


def test_sqlglot_raises_an_esl_error() -> None:
    with pytest.raises(EslError, match="never closed"):
        sqlglot.parse_one("SELECT 'open", read="esl")


def test_the_fixture_covers_typical_errors() -> None:
    assert len(cases()) >= 40

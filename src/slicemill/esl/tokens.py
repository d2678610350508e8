"""ESL's lexer: sqlglot's tokenizer with every word left a plain word.

ESL reserves few words, so keywords are recognised by the grammar where they can stand, and a stream may have
a column called `range` or `value`.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot.errors import TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType

from slicemill.esl.errors import Mistake
from slicemill.esl.source import Span

# Words that cannot name a column, stream or alias without quotes: each would make a clause ambiguous.
RESERVED = frozenset(
    """
    ALL AND AS BETWEEN BY CASE CAST CREATE CROSS DELETE DISTINCT DROP ELSE END EXISTS FALSE FROM FULL GROUP
    HAVING IN INNER INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT NOT NULL ON OR ORDER OVER RIGHT SELECT SET
    THEN TRUE UNION UPDATE USING VALUES WHEN WHERE WITH
    """.split()
)

# Words that begin a clause after a FROM entry, so they are no implicit alias there.
NOT_AN_ALIAS = RESERVED | {"ILIKE", "OFFSET", "PARTITION", "RANGE", "RLIKE", "ROWS", "SLIDE", "SLIDES", "WINDOW"}


class EslTokenizer(Tokenizer):
    QUOTES: ClassVar = ["'"]
    IDENTIFIERS: ClassVar = ['"', "`"]
    COMMENTS: ClassVar = ["--", ("/*", "*/")]
    KEYWORDS: ClassVar = {
        "||": TokenType.DPIPE,
        "<=": TokenType.LTE,
        ">=": TokenType.GTE,
        "<>": TokenType.NEQ,
        "!=": TokenType.NEQ,
        "==": TokenType.EQ,
        "<=>": TokenType.NULLSAFE_EQ,
        "::": TokenType.DCOLON,
    }


def tokenize(text: str) -> list[Token]:
    """The tokens of `text`; a Mistake where a quote or comment is never closed."""
    try:
        return list(EslTokenizer().tokenize(text))
    except TokenError:
        opening, start = unclosed(text)
        what = "comment" if opening == "/*" else "text" if opening == "'" else "quoted name"
        closing = "*/" if opening == "/*" else opening
        end = text.find("\n", start)
        raise Mistake(
            f"this {what} is never closed", Span(start, len(text) if end < 0 else end), f"add a closing {closing}"
        ) from None


def unclosed(text: str) -> tuple[str, int]:
    """The opening mark and offset of the quote or comment that runs past the end of `text`.

    >>> unclosed("SELECT 'it''s' -- don't")
    ('', 23)
    >>> unclosed("SELECT 'open")
    ("'", 7)
    """
    i = 0
    while i < len(text):
        if text.startswith("--", i):
            end = text.find("\n", i)
            i = len(text) if end < 0 else end
        elif text.startswith("/*", i):
            depth, j = 1, i + 2
            while depth and j < len(text):
                if text.startswith("/*", j) or text.startswith("*/", j):
                    depth += 1 if text[j] == "/" else -1
                    j += 2
                else:
                    j += 1
            if depth:
                return "/*", i
            i = j
        elif text[i] in "'\"`":
            end = text.find(text[i], i + 1)
            if end < 0:
                return text[i], i
            i = end + 1
        else:
            i += 1
    return "", len(text)

"""ESL's lexer: sqlglot's tokenizer without keyword tokens.

ESL reserves few words. The grammar recognizes keywords by their position, so a stream may have a column
called `range` or `value`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from slicemill.sql.errors import StatementError, TextSpan

# Reserved words, which must be quoted as names, because they would make a clause ambiguous.
_RESERVED = """
    ALL AND AS BETWEEN BY CASE CAST CREATE CROSS DELETE DISTINCT DROP ELSE END EXISTS FALSE FROM FULL GROUP
    HAVING IN INNER INSERT INTERVAL INTO IS JOIN LEFT LIKE LIMIT NOT NULL ON OR ORDER OVER RIGHT SELECT SET
    THEN TRUE UNION UPDATE USING VALUES WHEN WHERE WITH
"""
RESERVED = frozenset(_RESERVED.split())

# Words that begin a clause after a FROM entry, so they cannot be an alias without AS.
_CLAUSE_STARTS = """
    ANTI ASOF EMIT ESCAPE EXCEPT FETCH FOR ILIKE INTERSECT LATERAL NATURAL OFFSET PARTITION QUALIFY RANGE
    RLIKE ROWS SEMI SLIDE SLIDES WINDOW
"""
NOT_AN_ALIAS = RESERVED | frozenset(_CLAUSE_STARTS.split())


# Comparison operators as printed in books and papers, with their spelling in ESL.
PRINTED_SIGNS = {"≤": "<=", "≥": ">=", "≠": "<>"}
PRINTED_QUOTES = "‘’"


class EslTokenizer(Tokenizer):
    QUOTES: ClassVar = ["'", ("‘", "’"), ("’", "’")]
    SINGLE_TOKENS: ClassVar = {
        **Tokenizer.SINGLE_TOKENS,
        "≤": TokenType.LTE,
        "≥": TokenType.GTE,
        "≠": TokenType.NEQ,
        **dict.fromkeys(PRINTED_QUOTES, TokenType.UNKNOWN),
    }
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
    """Return the tokens of `text`.

    Raise StatementError for an unclosed quote or comment.
    """
    try:
        tokens = list(EslTokenizer().tokenize(text))
    except TokenError:
        opening, start = find_unclosed_quote(text)
        what = {"'": "string", "‘": "string", "’": "string", '"': "quoted name", "`": "quoted name"}.get(
            opening, "comment"
        )
        closing = _COMMENTS.get(opening, opening).replace("‘", "’")
        end = text.find("\n", start)
        raise StatementError(
            f"this {what} is never closed",
            TextSpan(start, len(text) if end < 0 else end),
            f"add a closing {closing}",
        ) from None
    for token in tokens:
        if token.token_type is TokenType.NATIONAL_STRING:
            # SQL's N'…' is a plain string, because every string is Unicode.
            token.token_type = TokenType.STRING
        token.text = PRINTED_SIGNS.get(token.text, token.text)
    return tokens


# {# … #} is Jinja's comment, which sqlglot recognizes in every dialect.
_COMMENTS = {"/*": "*/", "{#": "#}"}
_LINE_COMMENT = re.compile(r"--[^\r\n]*")


def find_unclosed_quote(text: str) -> tuple[str, int]:
    """Return the opening mark and the offset of an unclosed quote or comment.

    After a missing quote, each later opening quote is read as a closing quote. So if a quote is open at the
    end, the function reports the first quoted text that extends over a line end.

    >>> find_unclosed_quote("SELECT 'it''s' -- don't")
    ('', 23)
    >>> find_unclosed_quote("SELECT 'open")
    ("'", 7)
    >>> find_unclosed_quote("SELECT 'open FROM s;\\nSELECT 'x' FROM t")
    ("'", 7)
    """
    i = 0
    suspect: tuple[str, int] | None = None
    while i < len(text):
        opening = text[i : i + 2]
        if comment := _LINE_COMMENT.match(text, i):
            i = comment.end()
        elif opening in _COMMENTS:
            end = _comment_end(text, i, opening, _COMMENTS[opening])
            if end < 0:
                return suspect or (opening, i)
            i = end
        elif text[i] in f"'\"`{PRINTED_QUOTES}":
            end = text.find(text[i].replace("‘", "’"), i + 1)
            if suspect is None and "\n" in text[i:end]:
                suspect = text[i], i
            if end < 0:
                return suspect or (text[i], i)
            i = end + 1
        else:
            i += 1
    return "", len(text)


def _comment_end(text: str, start: int, opening: str, closing: str) -> int:
    """Return the offset after a comment, or -1 for an unclosed comment.

    Comments nest.
    """
    depth, i = 1, start + len(opening)
    while depth:
        if i >= len(text):
            return -1
        mark = text[i : i + 2]
        depth += (mark == opening) - (mark == closing)
        i += 2 if mark in (opening, closing) else 1
    return i

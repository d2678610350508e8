"""Split a text into statements before parsing them.

A server accepts different kinds of statements in one text: declarations, commands such as SHOW, and ad hoc
SQL queries. Each piece keeps its position in the text, so that positions in error messages are right.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.syntax.cursor import word_of
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.source import SourceText, TextSpan
from slicemill.esl.syntax.tokens import tokenize

QUESTIONS = ("SELECT", "WITH", "(", "VALUES", "FROM")


@dataclass(frozen=True, slots=True)
class StatementPiece:
    """One statement of a text, without its semicolon.

    `words` are its first two words in upper case.
    """

    source: SourceText
    span: TextSpan
    words: tuple[str, str]

    @property
    def text(self) -> str:
        return self.source.text[self.span.start : self.span.end]

    def to(self, other: StatementPiece) -> StatementPiece:
        """Return a piece that covers both pieces and the text between them."""
        return StatementPiece(self.source, self.span.to(other.span), self.words)

    def alone(self) -> SourceText:
        """Blank out all other pieces, so that positions stay the same."""
        before, after = self.source.text[: self.span.start], self.source.text[self.span.end :]
        return SourceText(_blank(before) + self.text + _blank(after), self.source.name)


def pieces(source: SourceText) -> list[StatementPiece]:
    """Split a text into its statements.

    A text with an unclosed quote is a single piece, whose parser reports the error.
    >>> [piece.text for piece in pieces(SourceText("SHOW QUERIES; SELECT ';' FROM hot"))]
    ['SHOW QUERIES', "SELECT ';' FROM hot"]
    >>> [piece.text for piece in pieces(SourceText("SELECT {'a': 1} AS s; SELECT 2"))]
    ["SELECT {'a': 1} AS s", 'SELECT 2']
    """
    try:
        tokens = tokenize(source.text)
    except Mistake:
        return [StatementPiece(source, TextSpan(0, len(source.text)), ("", ""))]
    words = [word_of(token) for token in tokens]
    found: list[StatementPiece] = []
    begin: int | None = None
    depth = brackets = 0
    for place, (token, word) in enumerate(zip(tokens, words, strict=True)):
        depth += (word == "{") - (word == "}")
        brackets += (word == "(") - (word == ")")
        following = words[place + 1] if place + 1 < len(words) else ""
        # The theses print a `;` before SOURCE. In a model, `;` separates the parameters from the constants.
        between = brackets > 0 and begin is not None and words[begin] == "CREATE"
        semicolon = word == ";" and depth <= 0 and not between and following not in ("SOURCE", "USING")
        if not semicolon and begin is None:
            begin = place
        # In an ad hoc query braces enclose struct values, not a body.
        body_ends = word == "}" and depth <= 0 and following != ";"
        asks = begin is not None and words[begin] in QUESTIONS
        ends = place == len(tokens) - 1 or (body_ends and not asks)
        if begin is not None and (semicolon or ends):
            last = tokens[place - 1] if semicolon else token
            first_words = (*words[begin : begin + 2], "")[:2]
            span = TextSpan(tokens[begin].start, last.end + 1)
            found.append(StatementPiece(source, span, (first_words[0], first_words[1])))
            begin, brackets = None, 0
    return found


def _blank(text: str) -> str:
    return "".join(char if char == "\n" else " " for char in text)

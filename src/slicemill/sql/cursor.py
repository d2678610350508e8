"""Token cursor that collects expected words for error messages.

The cursor records every failed `accept` at the current token. `fail` then lists the words that could have
followed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from slicemill.errors import did_you_mean, one_of
from slicemill.sql.errors import Diagnostic, EslError, SourceText, StatementError, TextSpan
from slicemill.sql.lexer import RESERVED, tokenize
from slicemill.sql.nodes import at

T = TypeVar("T")

# Maximum nesting depth of a text.
# A level takes up to fifteen Python frames, so 40 levels remain below Python's recursion limit.
MAX_DEPTH = 40

_NUMBER = re.compile(r"\d*\.?\d*(?:[eE][+-]?\d+)?", re.ASCII)


class Cursor:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.index = 0
        self.depth = 0
        self.warnings: list[Diagnostic] = []
        self._expected: list[str] = []
        self._expected_at = -1

    # -- reading of tokens without consuming ------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    def token(self, ahead: int = 0) -> Token | None:
        place = self.index + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """Return the word or symbol at the cursor in upper case, or "" for other tokens."""
        token = self.token(ahead)
        return "" if token is None else word_of(token)

    def looking_at(self, *words: str) -> bool:
        return all(self.word(i) == word for i, word in enumerate(words))

    def span(self) -> TextSpan:
        """Return the span of the current token, or of the end of the text."""
        token = self.token()
        if token is None:
            end = self.tokens[-1].end + 1 if self.tokens else 0
            return TextSpan(end, end)
        return TextSpan(token.start, token.end + 1)

    def span_from(self, start: TextSpan) -> TextSpan:
        """Return the span from `start` to the last consumed token."""
        if self.index == 0:
            return start
        return TextSpan(start.start, max(start.end, self.tokens[self.index - 1].end + 1))

    # -- consuming of tokens ---------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume these words and return True if they are the next words."""
        if self.looking_at(*words):
            self.index += len(words)
            return True
        self.note(" ".join(words))
        return False

    def take(self, word: str) -> bool:
        """Consume a word like `accept`, but do not list the word in error messages.

        An example is the sign before a number.
        """
        if self.word() == word:
            self.index += 1
            return True
        return False

    def accept_any(self, words: Sequence[str]) -> str:
        """Consume and return one of the words, or return ''.

        A word may have several parts, as in ON WINDOW CLOSE.
        """
        for word in words:
            if self.accept(*word.split()):
                return word
        return ""

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            self.fail()

    def number(self) -> str | None:
        token = self.token()
        if token is None or token.token_type is not TokenType.NUMBER:
            self.note("a number")
            return None
        if not _NUMBER.fullmatch(token.text):
            raise StatementError(f"{token.text} is no number", self.span())
        return self.advance().text

    def count(self) -> exp.Literal:
        """Consume an integer."""
        span = self.span()
        text = self.number()
        if text is None:
            self.fail()
        if not text.isdigit():
            raise StatementError(f"{text} is no integer", span)
        return at(exp.Literal(this=text, is_string=False), span)

    def string(self, what: str = "a string in quotes") -> str | None:
        token = self.token()
        if token is not None and token.token_type is TokenType.STRING:
            return self.advance().text
        self.note(what)
        return None

    def at_name(self, ahead: int = 0, barred: frozenset[str] = RESERVED) -> bool:
        token = self.token(ahead)
        if token is None:
            return False
        if token.token_type is TokenType.IDENTIFIER:
            return True
        return (
            token.token_type is TokenType.VAR and token.text.isidentifier() and word_of(token) not in barred
        )

    def name(self, what: str, barred: frozenset[str] = RESERVED) -> exp.Identifier:
        """Consume a name.

        `what` describes the name in error messages.
        """
        if not self.at_name(barred=barred):
            self.note(what)
            self.fail(hint_for_reserved(self.word()))
        span = self.span()
        token = self.advance()
        quoted = token.token_type is TokenType.IDENTIFIER
        return at(exp.Identifier(this=token.text, quoted=quoted), span)

    def plain_word(self, what: str) -> str:
        """Consume an unquoted word, and return it in upper case."""
        token = self.token()
        if token is None or token.token_type is TokenType.IDENTIFIER or not self.at_name():
            self.note(what)
            self.fail(hint_for_reserved(self.word()))
        return word_of(self.advance())

    def listing(self, parse: Callable[[], T]) -> list[T]:
        """Parse one or more items separated by commas."""
        items = [parse()]
        while self.comma():
            items.append(parse())
        return items

    def comma(self) -> bool:
        """Consume a comma.

        Raise StatementError if no item follows it.
        """
        span = self.span()
        if not self.accept(","):
            return False
        if self.done or self.word() in (")", "}", "]", ";", "FROM", "WHERE"):
            raise StatementError("nothing follows this comma", span, "leave it out, or go on with the list")
        return True

    def parse_nested(self, parse: Callable[[], T]) -> T:
        """Call a parser one nesting level deeper.

        Raise StatementError beyond the maximum depth.
        """
        self.check_depth(1)
        self.depth += 1
        try:
            return parse()
        finally:
            self.depth -= 1

    def check_depth(self, more: int) -> None:
        """Raise StatementError unless `more` nesting levels can be opened here."""
        if self.depth + more > MAX_DEPTH:
            hint = "name a part of it with CREATE STREAM or CREATE VIEW"
            raise StatementError(f"this is nested more than {MAX_DEPTH} levels deep", self.span(), hint)

    # -- warnings and errors -----------------------------------------------------------------------------

    def warn(self, message: str, span: TextSpan, hint: str) -> None:
        """Add a warning about a text that probably has an unintended meaning."""
        warning = Diagnostic(message, span, hint, warning=True)
        if warning not in self.warnings:  # some texts are parsed twice
            self.warnings.append(warning)

    def note(self, expected: str) -> None:
        if self._expected_at != self.index:
            self._expected_at, self._expected = self.index, []
        if expected not in self._expected:
            self._expected.append(expected)

    def fail(self, hint: str = "") -> NoReturn:
        """Raise an error that names the current token and the expected tokens.

        `hint` applies if no expected word is spelt similarly.
        """
        expected = self._expected if self._expected_at == self.index else []
        found = self.token()
        what = "the text ends here" if found is None else f"did not expect {describe_token(found)} here"
        # A long list of expected words does not help, so the message lists only closing brackets.
        # The hint names a similar word.
        shown = [word for word in expected if word not in ("AND", "OR") or "an operator" not in expected]
        if len(shown) > 6:
            shown = [word for word in shown if word in (")", "]", "}")]
        message = f"{what}, expected {one_of([quote_symbol(word) for word in shown])}" if shown else what
        raise StatementError(message, self.span(), self._spelling_hint(expected) or hint)

    def _spelling_hint(self, expected: Sequence[str]) -> str:
        """Return a hint for a misspelt keyword, or ''.

        The misspelt word is the current or the previous token.
        """
        found = self.token()
        if found is None:
            return ""
        if found.token_type is TokenType.IDENTIFIER:
            return "double quotes are for names; a string is written in single quotes"
        if found.token_type is TokenType.VAR and not found.text.isidentifier():
            return "only letters, digits and _ can stand in a name without quotes"
        keywords = [word for word in expected if word[0].isupper()]
        if word_of(found) in RESERVED:
            # The word is spelt correctly but incomplete, as in GROUP without BY.
            whole = next((word for word in keywords if word.startswith(f"{word_of(found)} ")), "")
            return f"write {whole}" if whole else ""
        if near := self._near(found, keywords):
            return near
        # A misspelt keyword is often parsed as an alias, and the error occurs at the next word.
        before = self.token(-1) if self.index else None
        if before is None or word_of(before) in RESERVED:
            return ""
        return self._near(before, keywords).replace("did you mean", f"for {before.text}, did you mean")

    def _near(self, token: Token, keywords: Sequence[str]) -> str:
        # Words of two letters are similar to too many keywords.
        if token.token_type is not TokenType.VAR or len(token.text) < 3:
            return ""
        return did_you_mean(token.text, keywords)


def word_of(token: Token) -> str:
    """Return a token's word or symbol in upper case.

    The result is "" for strings, numbers and quoted names.
    """
    if token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER):
        return ""
    return token.text.upper()


def describe_token(token: Token) -> str:
    if token.token_type is TokenType.STRING:
        return f"the string '{token.text}'"
    return f'"{token.text}"' if token.token_type is TokenType.IDENTIFIER else quote_symbol(token.text)


def quote_symbol(word: str) -> str:
    """Return a word unchanged, or a symbol in quotes.

    Without quotes a comma would look like punctuation of the message.
    """
    return word if any(char.isalnum() for char in word) else f"'{word}'"


def hint_for_reserved(word: str) -> str:
    if word not in RESERVED:
        return ""
    return f"{word} is a reserved word; write it in double quotes to use it as a name"


# Errors with a position for texts that are nested too deeply
#
# Parsers and binders are recursive, and Python's RecursionError has no position in the text. The permitted
# depth depends on the kind of nesting. So the limit is that of the interpreter, and the position is
# determined after the RecursionError.


_OPENS = frozenset("([{") | {"CASE"}
_CLOSES = frozenset(")]}") | {"END"}
_PREFIXES = frozenset("-+~") | {"NOT", "INTERVAL"}
_HINT = "take it apart: name parts of it WITH, or with CREATE VIEW"


@contextmanager
def report_deep_nesting(source: SourceText) -> Iterator[None]:
    """Convert a RecursionError to an EslError at the most deeply nested position."""
    try:
        yield
    except RecursionError:
        error = EslError(source, [too_deep_error(source)])
    else:
        return
    raise error


def too_deep_error(source: SourceText, within: TextSpan | None = None) -> Diagnostic:
    """Return the error of a text that is nested too deeply.

    >>> too_deep_error(SourceText("SELECT ((1))")).span
    TextSpan(start=8, end=9)
    """
    return Diagnostic("this is nested too deeply", _deepest(source.text, within), _HINT)


def _deepest(text: str, within: TextSpan | None) -> TextSpan:
    found = within or TextSpan(0, len(text))
    try:
        tokens = tokenize(text)
    except StatementError:
        return found
    depth = run = most = 0
    for token in tokens:
        if within is not None and not within.start <= token.start <= within.end:
            continue
        word = word_of(token)
        depth += (word in _OPENS) - (word in _CLOSES)
        run = run + 1 if word in _PREFIXES else 0
        if depth + run > most:
            most, found = depth + run, TextSpan(token.start, token.end + 1)
    return found


# Splitting of a text into statements before parsing
#
# A server accepts different kinds of statements in one text: declarations, commands such as SHOW, and ad
# hoc SQL queries. Each piece keeps its position in the text, so that positions in error messages are right.


QUERY_STARTS = ("SELECT", "WITH", "(", "VALUES", "FROM")


@dataclass(frozen=True, slots=True)
class StatementPiece:
    """One statement of a text, without its semicolon.

    `words` are the first two words of the statement in upper case.
    """

    source: SourceText
    span: TextSpan
    words: tuple[str, str]

    @property
    def text(self) -> str:
        return self.source.text[self.span.start : self.span.end]

    def to(self, other: StatementPiece) -> StatementPiece:
        """Return a piece from the start of this statement to the end of another."""
        return StatementPiece(self.source, self.span.to(other.span), self.words)

    def alone(self) -> SourceText:
        """Return the whole text with all other statements replaced by blanks.

        Because of the blanks, positions in error messages are correct.
        """
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
    except StatementError:
        return [StatementPiece(source, TextSpan(0, len(source.text)), ("", ""))]
    words = [word_of(token) for token in tokens]
    found: list[StatementPiece] = []
    begin: int | None = None
    depth = brackets = 0
    for place, (token, word) in enumerate(zip(tokens, words, strict=True)):
        depth += (word == "{") - (word == "}")
        brackets += (word == "(") - (word == ")")
        following = words[place + 1] if place + 1 < len(words) else ""
        # A `;` inside the brackets of a CREATE does not end the statement.
        # Published ESL has a `;` before SOURCE, and in a model `;` separates the parameters from the
        # constants.
        between = brackets > 0 and begin is not None and words[begin] == "CREATE"
        semicolon = word == ";" and depth <= 0 and not between and following not in ("SOURCE", "USING")
        if not semicolon and begin is None:
            begin = place
        # In an ad hoc query, braces enclose struct values, not the body of an aggregate.
        body_ends = word == "}" and depth <= 0 and following != ";"
        asks = begin is not None and words[begin] in QUERY_STARTS
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

"""A place in a token list that remembers what it was asked for.

Every failed `accept` at the current token is noted, so that an error can say all that could have stood there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

from slicemill.esl.errors import Mistake, did_you_mean, one_of
from slicemill.esl.nodes import at
from slicemill.esl.source import Span
from slicemill.esl.tokens import RESERVED

T = TypeVar("T")

# Far above any query a person writes, far below Python's own limit: each level costs about ten frames.
MAX_DEPTH = 60


class Cursor:
    def __init__(self, tokens: Sequence[Token], text: str) -> None:
        self.tokens = tokens
        self.text = text
        self.index = 0
        self.depth = 0
        self._expected: list[str] = []
        self._expected_at = -1

    # -- looking ---------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    def token(self, ahead: int = 0) -> Token | None:
        place = self.index + ahead
        return self.tokens[place] if place < len(self.tokens) else None

    def word(self, ahead: int = 0) -> str:
        """The upper-case word or symbol at the cursor; empty for texts, numbers, quoted names and the end."""
        token = self.token(ahead)
        if token is None or token.token_type in (TokenType.STRING, TokenType.NUMBER, TokenType.IDENTIFIER):
            return ""
        return token.text.upper()

    def looking_at(self, *words: str) -> bool:
        return all(self.word(i) == word for i, word in enumerate(words))

    def span(self) -> Span:
        """The place of the current token, or just behind the last one."""
        token = self.token()
        if token is None:
            end = self.tokens[-1].end + 1 if self.tokens else 0
            return Span(end, end)
        return Span(token.start, token.end + 1)

    def span_from(self, start: Span) -> Span:
        """From `start` to the last token consumed."""
        if self.index == 0:
            return start
        return Span(start.start, max(start.end, self.tokens[self.index - 1].end + 1))

    # -- consuming -------------------------------------------------------------------------------------

    def advance(self) -> Token:
        token = self.tokens[self.index]
        self.index += 1
        return token

    def accept(self, *words: str) -> bool:
        """Consume these words if they all stand here."""
        if self.looking_at(*words):
            self.index += len(words)
            return True
        self.note(" ".join(words))
        return False

    def take(self, word: str) -> bool:
        """Like `accept`, but not noted: for what an error need not list, such as a sign before a number."""
        if self.word() == word:
            self.index += 1
            return True
        return False

    def accept_any(self, words: Sequence[str]) -> str:
        """Consume one of the words (each may have several parts) and return it, or return ''."""
        for word in words:
            if self.accept(*word.split()):
                return word
        return ""

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            self.fail()

    def number(self) -> str | None:
        token = self.token()
        if token is not None and token.token_type is TokenType.NUMBER:
            return self.advance().text
        self.note("a number")
        return None

    def string(self, what: str = "a text in quotes") -> str | None:
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
        return token.token_type is TokenType.VAR and token.text.upper() not in barred

    def name(self, what: str, barred: frozenset[str] = RESERVED) -> exp.Identifier:
        """Consume a name; `what` says what it names, for the message."""
        if not self.at_name(barred=barred):
            self.note(what)
            hint = ""
            if self.word() in RESERVED:
                hint = f'{self.word()} is a reserved word; write it in double quotes to use it as a name'
            self.fail(hint=hint)
        span = self.span()
        token = self.advance()
        quoted = token.token_type is TokenType.IDENTIFIER
        return at(exp.Identifier(this=token.text, quoted=quoted), span)

    def listing(self, parse: Callable[[], T]) -> list[T]:
        """One or more, separated by commas."""
        items = [parse()]
        while self.accept(","):
            items.append(parse())
        return items

    def nested(self, parse: Callable[[], T]) -> T:
        """Parse one level deeper; an absurd depth is the user's mistake, not a crash of ours."""
        self.depth += 1
        try:
            if self.depth > MAX_DEPTH:
                raise Mistake(
                    f"this is nested more than {MAX_DEPTH} levels deep",
                    self.span(),
                    "name a part of it with CREATE STREAM or CREATE VIEW",
                )
            return parse()
        finally:
            self.depth -= 1

    # -- failing ---------------------------------------------------------------------------------------

    def note(self, expected: str) -> None:
        if self._expected_at != self.index:
            self._expected_at, self._expected = self.index, []
        if expected not in self._expected:
            self._expected.append(expected)

    def fail(self, hint: str = "") -> NoReturn:
        """Say what stands here and what could have stood here instead."""
        expected = self._expected if self._expected_at == self.index else []
        found = self.token()
        what = "the text ends here" if found is None else f"did not expect {found_text(found)} here"
        # A long list of possibilities helps nobody; the near-miss among them does.
        short = expected if len(expected) <= 6 else []
        message = f"{what}, expected {one_of(short)}" if short else what
        if not hint and found is not None and found.token_type is TokenType.VAR:
            keywords = [word for word in expected if word.replace(" ", "").isalpha() and word.isupper()]
            hint = did_you_mean(found.text, keywords) or self._misread_word(keywords)
        if not hint and len(expected) > 6:
            hint = f"here could stand {one_of(expected)}"
        raise Mistake(message, self.span(), hint)

    def _misread_word(self, keywords: Sequence[str]) -> str:
        """A misspelt keyword is often taken for an alias, and the complaint comes one word later."""
        before = self.token(-1) if self.index else None
        if before is None or before.token_type is not TokenType.VAR:
            return ""
        near = did_you_mean(before.text, keywords)
        return near.replace("did you mean", f"for {before.text}, did you mean") if near else ""


def found_text(token: Token) -> str:
    if token.token_type is TokenType.STRING:
        return f"the text '{token.text}'"
    return token.text

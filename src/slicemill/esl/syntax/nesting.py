"""Report too deeply nested texts as errors with a position.

Without this they would raise RecursionError. Parsers and binders are recursive, and the permitted depth
depends on the kind of nesting. So the limit is that of the interpreter, and the position is searched after
the RecursionError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slicemill.esl.syntax.cursor import word_of
from slicemill.esl.syntax.errors import Diagnostic, EslError, Mistake
from slicemill.esl.syntax.source import SourceText, TextSpan
from slicemill.esl.syntax.tokens import tokenize

_OPENS = frozenset("([{") | {"CASE"}
_CLOSES = frozenset(")]}") | {"END"}
_PREFIXES = frozenset("-+~") | {"NOT", "INTERVAL"}
_HINT = "take it apart: name parts of it WITH, or with CREATE VIEW"


@contextmanager
def nesting_told(source: SourceText) -> Iterator[None]:
    """Turn RecursionError into an EslError at the deepest position."""
    try:
        yield
    except RecursionError:
        error = EslError(source, [too_deep(source)])
    else:
        return
    raise error


def too_deep(source: SourceText, within: TextSpan | None = None) -> Diagnostic:
    """Return the error of a too deeply nested text.

    >>> too_deep(SourceText("SELECT ((1))")).span
    TextSpan(start=8, end=9)
    """
    return Diagnostic("this is nested too deeply", _deepest(source.text, within), _HINT)


def _deepest(text: str, within: TextSpan | None) -> TextSpan:
    found = within or TextSpan(0, len(text))
    try:
        tokens = tokenize(text)
    except Mistake:
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

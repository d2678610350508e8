"""Diagnostics of statements: errors and warnings with position and hint."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from slicemill.errors import SlicemillError
from slicemill.secrets import mask_secrets

MAX_LINE = 140


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Error in a statement, or a `warning` about text that is probably wrong.

    `span` is the text to underline. `hint` suggests a correction.
    """

    message: str
    span: TextSpan
    hint: str = ""
    warning: bool = False


class StatementError(Exception):
    """Error of a statement, raised inside the front end.

    `slicemill.binder` converts it to an EslError.
    """

    def __init__(self, message: str, span: TextSpan, hint: str = "") -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(message, span, hint)


class EslError(SlicemillError):
    """All errors found in one ESL text.

    >>> mistake = Diagnostic("unexpected SELEC", TextSpan(0, 5), "did you mean SELECT?")
    >>> EslError(SourceText("SELEC 1"), [mistake])
    EslError('<esl>:1:1: unexpected SELEC...')
    """

    def __init__(self, source: SourceText, diagnostics: Sequence[Diagnostic]) -> None:
        self.source = source
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: (d.span.start, d.span.end)))
        super().__init__("\n\n".join(render(source, d) for d in self.diagnostics))

    def __repr__(self) -> str:
        first = self.diagnostics[0]
        line, column = self.source.position(first.span.start)
        return f"EslError('{self.source.name}:{line}:{column}: {first.message}...')"


def render(source: SourceText, diagnostic: Diagnostic) -> str:
    """Return the diagnostic as text with the underlined line.

    Passwords in the line are masked.
    """
    line, column = source.position(diagnostic.span.start)
    text, before = _excerpt(SourceText(mask_secrets(source.text)).line_text(line), column - 1)
    gutter = f"{line:>4} | "
    width = max(1, min(diagnostic.span.end - diagnostic.span.start, len(text) - before))
    # Tabs are copied to the second line, so that the marks align with the text.
    indent = "".join("\t" if char == "\t" else " " for char in text[:before])
    severity = "warning" if diagnostic.warning else "error"
    rows = [
        f"{source.name}:{line}:{column}: {severity}: {diagnostic.message}",
        f"{gutter}{text}",
        f"{' ' * (len(gutter) - 2)}| {indent}{'^' * width}",
    ]
    if diagnostic.hint:
        rows.append(f"{' ' * (len(gutter) - 2)}= hint: {diagnostic.hint}")
    return "\n".join(rows)


def _excerpt(text: str, before: int) -> tuple[str, int]:
    """Return part of a long line around an error.

    The second result is the length of the text before the error.
    """
    if len(text) <= MAX_LINE:
        return text, before
    start = max(0, before - MAX_LINE // 2)
    lead = "…" if start else ""
    tail = "…" if start + MAX_LINE < len(text) else ""
    return f"{lead}{text[start : start + MAX_LINE]}{tail}", before - start + len(lead)


# Positions in ESL text: character spans, lines and columns


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Range of character offsets in a text, without the end."""

    start: int
    end: int

    def __deepcopy__(self, memo: object) -> TextSpan:
        # Spans are immutable, so a copied syntax tree shares the spans of the original tree.
        return self

    def to(self, other: TextSpan) -> TextSpan:
        return TextSpan(min(self.start, other.start), max(self.end, other.end))


@dataclass(frozen=True)
class SourceText:
    """Named ESL text that maps offsets to lines and columns.

    Lines and columns count from 1.
    """

    text: str
    name: str = "<esl>"

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(i + 1 for i, char in enumerate(self.text) if char == "\n")]

    def position(self, offset: int) -> tuple[int, int]:
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        start = self._line_starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")

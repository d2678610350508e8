"""ESL diagnostics: every mistake with its place, the underlined text and a hint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from slicemill.errors import SlicemillError
from slicemill.esl.syntax.source import Source, Span

MAX_LINE = 140


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake. `span` is where to underline; `hint` says what to do."""

    message: str
    span: Span
    hint: str = ""


class Mistake(Exception):
    """Raised inside the front end where a statement cannot be understood; never leaves `slicemill.esl`."""

    def __init__(self, message: str, span: Span, hint: str = "") -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(message, span, hint)


class EslError(SlicemillError):
    """All mistakes found in one ESL text.

    >>> EslError(Source("SELEC 1"), [Diagnostic("unexpected SELEC", Span(0, 5), "did you mean SELECT?")])
    EslError('<esl>:1:1: unexpected SELEC...')
    """

    def __init__(self, source: Source, diagnostics: Sequence[Diagnostic]) -> None:
        self.source = source
        self.diagnostics = tuple(sorted(diagnostics, key=lambda d: (d.span.start, d.span.end)))
        super().__init__("\n\n".join(render(source, d) for d in self.diagnostics))

    def __repr__(self) -> str:
        first = self.diagnostics[0]
        line, column = self.source.position(first.span.start)
        return f"EslError('{self.source.name}:{line}:{column}: {first.message}...')"


def render(source: Source, diagnostic: Diagnostic) -> str:
    """The diagnostic as people read it: place, message, the line with the mistake underlined, hint."""
    line, column = source.position(diagnostic.span.start)
    text, before = _excerpt(source.line_text(line), column - 1)
    gutter = f"{line:>4} | "
    width = max(1, min(diagnostic.span.end - diagnostic.span.start, len(text) - before))
    # Tabs keep their width under the line, so that the marks stand where the text stands.
    indent = "".join("\t" if char == "\t" else " " for char in text[:before])
    rows = [
        f"{source.name}:{line}:{column}: error: {diagnostic.message}",
        f"{gutter}{text}",
        f"{' ' * (len(gutter) - 2)}| {indent}{'^' * width}",
    ]
    if diagnostic.hint:
        rows.append(f"{' ' * (len(gutter) - 2)}= hint: {diagnostic.hint}")
    return "\n".join(rows)


def _excerpt(text: str, before: int) -> tuple[str, int]:
    """The part of a long line around the mistake, and how much of it stands before the mistake."""
    if len(text) <= MAX_LINE:
        return text, before
    start = max(0, before - MAX_LINE // 2)
    lead = "…" if start else ""
    tail = "…" if start + MAX_LINE < len(text) else ""
    return f"{lead}{text[start : start + MAX_LINE]}{tail}", before - start + len(lead)


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A hint naming the nearest candidates, or nothing where none is near.

    >>> did_you_mean("prise", ["price", "itemID"])
    'did you mean price?'
    """
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    near = get_close_matches(word.lower(), by_lower, n=3, cutoff=0.6)
    if not near:
        return ""
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?"


def one_of(words: Sequence[str], last: str = "or") -> str:
    """Words as a choice in prose: `a`, `a or b`, `a, b or c`."""
    if len(words) <= 1:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


def all_of(words: Sequence[str]) -> str:
    """Words as a list in prose: `a`, `a and b`, `a, b and c`."""
    return one_of(words, "and")


def counted(number: int, word: str) -> str:
    """A number of things: `1 column`, `2 columns`."""
    return f"{number} {word}{'' if number == 1 else 's'}"

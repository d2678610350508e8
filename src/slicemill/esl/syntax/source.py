"""Positions in ESL text: character spans, lines and columns."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class TextSpan:
    """Half-open range of character offsets."""

    start: int
    end: int

    def __deepcopy__(self, memo: object) -> TextSpan:
        # Spans are immutable, so the copy of a syntax tree shares them.
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

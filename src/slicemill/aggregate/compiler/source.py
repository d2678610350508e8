"""Python source under construction: lines, indentation, and names that are used once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ATOM = re.compile(r"-?[\w.]+(\[[\w. +]*\])?[\w.]*")


class NoCompiledForm(Exception):
    """Something has no form in generated code; the text says what, for `explain`."""


@dataclass(frozen=True, slots=True)
class Code:
    """The text of a value, and the text of whether it is NULL; where it is, the value is arbitrary."""

    value: str
    null: str = "False"

    @property
    def known(self) -> bool:
        """Whether it is never NULL."""
        return self.null == "False"

    @property
    def truth(self) -> str:
        """Of a condition: whether it is true, neither false nor unknown."""
        if self.known:
            return self.value
        return "False" if self.null == "True" else f"(not {self.null} and {self.value})"


def any_null(codes: list[Code]) -> str:
    """The text of whether one of some values is NULL."""
    parts = list(dict.fromkeys(code.null for code in codes if not code.known))
    if "True" in parts:
        return "True"
    return "False" if not parts else parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


class Writer:
    """`failing` says whether a line written so far can end the run with an error."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failing = False
        self._depth = 0
        self._names = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def fresh(self, stem: str = "v") -> str:
        self._names += 1
        return f"{stem}{self._names}"

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        before = len(self.lines)
        yield
        if len(self.lines) == before:
            self.line("pass")
        self._depth -= 1

    @contextmanager
    def aside(self) -> Iterator[Aside]:
        """Lines for a place that is decided later, with `put`."""
        lines, failing = self.lines, self.failing
        aside = Aside([], self._depth, False)
        self.lines, self.failing = aside.lines, False
        yield aside
        aside.failing = self.failing
        self.lines, self.failing = lines, failing

    def put(self, aside: Aside) -> None:
        shift = "    " * (self._depth - aside.depth)
        self.lines += [shift + line for line in aside.lines]
        self.failing = self.failing or aside.failing

    def named(self, code: Code, stem: str = "v") -> Code:
        """The same value as something that can be repeated."""
        value, null = code.value, code.null
        if not _ATOM.fullmatch(value):
            name = self.fresh(stem)
            self.line(f"{name} = {value}")
            value = name
        if not _ATOM.fullmatch(null):
            name = f"{value}_null" if value.isidentifier() else self.fresh("null")
            self.line(f"{name} = {null}")
            null = name
        return Code(value, null)


@dataclass(slots=True)
class Aside:
    lines: list[str]
    depth: int
    failing: bool

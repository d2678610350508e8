"""Writer for generated Python source: lines, indentation and fresh names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_ATOM = re.compile(r"-?[\w.]+(\[[\w. +]*\])?[\w.]*")


class NoCompiledForm(Exception):
    """Raised if something has no form in generated code.

    The message says what.
    """


@dataclass(frozen=True, slots=True)
class Code:
    """Source of a value and of its NULL flag.

    NULL values are arbitrary.
    """

    value: str
    null: str = "False"

    @property
    def known(self) -> bool:
        """Return True if the value is never NULL."""
        return self.null == "False"

    @property
    def truth(self) -> str:
        """Return the source of a predicate's truth; NULL is false."""
        if self.known:
            return self.value
        return "False" if self.null == "True" else f"(not {self.null} and {self.value})"


def any_null(codes: list[Code]) -> str:
    """Return the source of a test if any value is NULL."""
    parts = list(dict.fromkeys(code.null for code in codes if not code.known))
    if "True" in parts:
        return "True"
    return "False" if not parts else parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


class Writer:
    """Source lines under construction.

    `failing` is set if a line written so far can end the run with an error.
    """

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
        """Collect lines that `put` will insert later."""
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
        """Return repeatable source of a value, if necessary via a variable."""
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

"""Collect errors, so that a statement can report all of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from slicemill.esl.syntax.errors import Diagnostic, Mistake


class Mistakes(Exception):
    """Several errors of one statement."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(f"{len(diagnostics)} mistakes")
        self.diagnostics = diagnostics


class Problems:
    """Collector of errors; `raise_any` raises the collected ones.

    >>> problems = Problems()
    >>> from slicemill.esl.syntax.source import TextSpan
    >>> with problems.noting():
    ...     raise Mistake("no such column", TextSpan(0, 1))
    >>> [d.message for d in problems.diagnostics]
    ['no such column']
    """

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.silenced = False

    @contextmanager
    def noting(self) -> Iterator[None]:
        try:
            yield
        except Mistake as mistake:
            self.diagnostics.append(mistake.diagnostic)
        except Mistakes as mistakes:
            self.diagnostics.extend(mistakes.diagnostics)
        except Unknowable:
            self.silenced = True

    def raise_any(self) -> None:
        if self.diagnostics:
            raise Mistakes(self.diagnostics)
        if self.silenced:
            raise Unknowable


class Unknowable(Exception):
    """Raised where a statement depends on a broken declaration."""

"""What a script declares when a server starts, although some of it cannot be had yet.

A source that is down is the engine's to try again. A table whose file is not there, or a place that nobody
can open, cannot even be declared: the statements that need it wait, the others run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slicemill.errors import SlicemillError
from slicemill.esl import EslError, SourceText
from slicemill.esl.syntax.pieces import StatementPiece, pieces
from slicemill.server.service import MillService


class WaitingStatements:
    """Statements of a script that could not be declared, and why."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self._waiting: list[tuple[StatementPiece, SlicemillError]] = []
        self._lock = threading.Lock()
        service.other_problems.append(self.problems)

    def declare(self, source: SourceText) -> None:
        """Declare a script, or what can be of it; a mistake in its words is raised, and nothing is done."""
        try:
            self._service.declare(source, None)
        except EslError:
            raise
        except SlicemillError:
            self._declare_each(pieces(source))

    def try_again(self) -> list[str]:
        """Declare those that wait, as far as they can be by now; returns what was declared."""
        with self._lock:
            before = [piece for piece, _ in self._waiting]
            if before:
                self._declare_each(before)
            left = [piece for piece, _ in self._waiting]
        return [_short(piece) for piece in before if piece not in left]

    def problems(self) -> list[str]:
        """What waits, and for what."""
        return [f"waits, and is tried again: {_short(piece)}: {why}" for piece, why in self._waiting]

    def _declare_each(self, found: Sequence[StatementPiece]) -> None:
        """One by one: what needs one that waits is not known without it, and waits as well."""
        waiting: list[tuple[StatementPiece, SlicemillError]] = []
        for piece in found:
            try:
                self._service.declare(piece.alone(), None)
            except SlicemillError as problem:
                waiting.append((piece, problem))
            except OSError as problem:  # such as too many open files
                waiting.append((piece, SlicemillError(problem.strerror or str(problem))))
        self._waiting = waiting


def _short(piece: StatementPiece) -> str:
    words = piece.text.split()
    return " ".join(words[:3]) + (" …" if len(words) > 3 else "")

"""Start-up script of a server, with retry of statements that cannot be declared yet.

The engine itself retries a source that is down. A table whose file is missing, or a location that cannot be
opened, cannot be declared at all. Such a statement and the statements that depend on it are retried later.
The other statements run.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from slicemill.errors import SlicemillError
from slicemill.esl import EslError, SourceText
from slicemill.esl.syntax.pieces import StatementPiece, pieces
from slicemill.server.service import MillService


class WaitingStatements:
    """Statements of a script that could not be declared yet, with their errors."""

    def __init__(self, service: MillService) -> None:
        self._service = service
        self._waiting: list[tuple[StatementPiece, SlicemillError]] = []
        self._lock = threading.Lock()
        service.other_problems.append(self.problems)

    def declare(self, source: SourceText) -> None:
        """Declare a script, or the part of it that can be declared. Raise EslError, without any effect, if
        the text is invalid."""
        try:
            self._service.declare(source, None)
        except EslError:
            raise
        except SlicemillError:
            self._declare_each(pieces(source))

    def try_again(self) -> list[str]:
        """Retry the waiting statements. Returns the statements that are declared now."""
        with self._lock:
            before = [piece for piece, _ in self._waiting]
            if before:
                self._declare_each(before)
            left = [piece for piece, _ in self._waiting]
        return [_short(piece) for piece in before if piece not in left]

    def problems(self) -> list[str]:
        """Return the waiting statements with their errors."""
        return [f"waits, and is tried again: {_short(piece)}: {why}" for piece, why in self._waiting]

    def _declare_each(self, found: Sequence[StatementPiece]) -> None:
        """Declare statements one by one. A statement that depends on a waiting statement fails and waits
        as well."""
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

"""What can go wrong between a client and a server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatementMistake:
    """One mistake; lines and columns count from 1, and are None where it has no place."""

    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line is not None else ""
        return f"{place}{self.message}{f' ({self.hint})' if self.hint else ''}"


class ClientError(Exception):
    """A request that was not answered as it should be."""


class ServerUnreachable(ClientError):
    """No server answers at the URL."""


class StatementRefused(ClientError):
    """The server did not do what it was asked to do; `mistakes` says why."""

    def __init__(self, mistakes: list[StatementMistake], status: int) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes
        self.status = status

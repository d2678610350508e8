"""Errors of the client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StatementMistake:
    """Error in a statement. Lines and columns count from 1, and are None if the position is unknown."""

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
    """Base class of the client's errors."""


class ServerUnreachable(ClientError):
    """Error: no server responds at the URL."""


class StatementRefused(ClientError):
    """Error: the server has rejected a request. `mistakes` lists the errors in the statements."""

    def __init__(self, mistakes: list[StatementMistake], status: int) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes
        self.status = status

"""Errors of ad hoc queries, with positions in the SQL text."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import sqlglot

from slicemill.errors import SlicemillError
from slicemill.sql.errors import Diagnostic, EslError, SourceText, TextSpan

_HINT = 300


class AdhocQueryRejected(SlicemillError):
    """Error: too many ad hoc queries run at the moment. The client may retry later."""


class AdhocQueryCancelled(SlicemillError):
    """Error: the user or a timeout ended the query before its answer was complete."""


class OutOfMemory(SlicemillError):
    """Error: the query needed more memory than its limit."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(
            f"the ad hoc query needs more than {memory_bytes >> 20:,} MB of memory; read fewer rows or "
            "columns, or start the server with a larger --adhoc-memory"
        )


class UnknownName(SlicemillError):
    """Error: no relation has the name in the query. `hint` suggests existing names."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint


def syntax_error(sql: str, problem: sqlglot.errors.SqlglotError) -> SlicemillError:
    """Return the error for a text that is not valid SQL."""
    known: list[dict[str, Any]] = getattr(problem, "errors", [])
    # For example, the error of an unterminated quote has no position.
    if not known or known[0]["line"] is None:
        detail = str(problem).splitlines()[0]
        return _error_at(sql, f"this ad hoc query cannot be read: {detail}", TextSpan(0, len(sql)))
    line, column, word = known[0]["line"], known[0]["col"], known[0]["highlight"] or ""
    lines = sql.splitlines(keepends=True)
    end = min(sum(map(len, lines[: line - 1])) + column, len(sql))
    span = TextSpan(max(0, end - len(word)), end)
    detail = (
        f"{word} is not expected here" if sql[end:].strip() else f"the text ends unexpectedly after {word}"
    )
    return _error_at(sql, detail, span)


def duckdb_error(sql: str, problem: duckdb.Error) -> SlicemillError:
    """Convert an error of DuckDB, which is JSON, to a diagnostic with a position in the SQL text."""
    _, _, detail = str(problem).partition(": ")
    try:
        fields = json.loads(detail)
    except ValueError:
        return SlicemillError("\n".join(str(problem).splitlines()[:4]))
    message, *rest = [line.strip() for line in fields["exception_message"].splitlines() if line.strip()]
    hint = " ".join(rest)
    hint = hint if len(hint) <= _HINT else f"{hint[:_HINT]}…"
    if "location" not in fields:
        return SlicemillError(f"{message}; {hint}" if hint else message)
    first, length = json.loads(fields["location"])
    start, end = (len(sql.encode()[:place].decode(errors="ignore")) for place in (first, first + length))
    return _error_at(sql, message, TextSpan(start, end), hint)


def no_such_relation(sql: str, name: str, problem: UnknownName) -> SlicemillError:
    """Return the error for an unknown relation in FROM."""
    for token in sqlglot.tokenize(sql, read="duckdb"):
        if token.text.lower() == name.lower():
            return _error_at(sql, problem.message, TextSpan(token.start, token.end + 1), problem.hint)
    return problem


def _error_at(sql: str, message: str, span: TextSpan, hint: str = "") -> EslError:
    return EslError(SourceText(sql), [Diagnostic(message, span, hint)])

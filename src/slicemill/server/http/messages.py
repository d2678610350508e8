"""Pydantic messages of HTTP requests and responses, described in OpenAPI."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, Field

from slicemill.adhoc.errors import UnknownName
from slicemill.columns.rows import with_unique_names
from slicemill.server.answer import StatementAnswer
from slicemill.server.encoding import json_rows
from slicemill.sql.errors import EslError

_ROWS_AT_ONCE = 10_000
_ROWS = ',"rows":'
_NO_ROWS = f"{_ROWS}null}}"


class StatementText(BaseModel):
    """Statements in ESL (SQL for streams), separated by semicolons."""

    text: str = Field(examples=["SHOW QUERIES"], max_length=1_000_000)


class RequestProblem(BaseModel):
    """One error. Lines and columns count from 1; the end is after the last character."""

    message: str
    hint: str = ""
    line: int | None = None
    column: int | None = None
    end_line: int | None = None
    end_column: int | None = None


class RefusedRequest(BaseModel):
    """Rejected request, with all errors that were found."""

    errors: list[RequestProblem]


class ColumnType(BaseModel):
    name: str
    type: str


class AnswerBody(BaseModel):
    """Result of one statement: a message, or columns and rows."""

    tag: str
    message: str
    columns: list[ColumnType] | None = None
    rows: list[dict[str, Any]] | None = None


class StatementAnswers(BaseModel):
    answers: list[AnswerBody]


class ResultRows(BaseModel):
    """Results of a query, all of one `version` of the query.

    `next` is the epoch to request next. `gap` is True if the first requested epochs are no longer retained.
    """

    rows: list[dict[str, Any]]
    next: int
    gap: bool
    version: int


class VersionEntry(BaseModel):
    """Version of a query, in force from `epoch` on.

    `because` names a replaced object that the query uses, if the query's own text did not change.
    """

    version: int
    epoch: int
    at: str
    by: str
    text: str
    because: str | None


class CatalogEntry(BaseModel):
    """Declared object, with user and time."""

    kind: str
    name: str
    text: str
    by: str
    at: str


class AlertEntry(BaseModel):
    """Alert and its state.

    `state` is ok, pending, firing (for the keys in `firing`, since `since`), or following for an alert that
    sends rows. `waiting` counts messages that the webhook has not accepted yet.
    """

    name: str
    on: str
    condition: str | None
    state: str
    since: str | None
    firing: list[str]
    sent: int
    last_sent: str | None
    waiting: int
    webhook: str
    error: str | None


class QueryEntry(BaseModel):
    """Query and its state: running, paused, failed, restarting (at `next_try`), or ad hoc.

    `error` is the last failure, `failures` the number of consecutive failures.
    """

    name: str
    state: str
    version: int = 1
    columns: list[ColumnType]
    text: str
    error: str | None
    failures: int = 0
    next_try: str | None = None
    paused_since: str | None = None
    paused_by: str | None = None
    metrics: dict[str, Any] | None
    progress: dict[str, Any] | None  # progress of a backfill, or None without a backfill


class Health(BaseModel):
    """Health of the server. `problems` lists failing operations; `ready` is True if queries run."""

    ready: bool
    version: str
    problems: list[str]


def problems_of(error: Exception) -> RefusedRequest:
    """Return an error as clients receive it. Errors in statements include their position."""
    if isinstance(error, UnknownName):
        return RefusedRequest(errors=[RequestProblem(message=error.message, hint=error.hint)])
    if not isinstance(error, EslError):
        return RefusedRequest(errors=[RequestProblem(message=str(error))])
    found = []
    for diagnostic in error.diagnostics:
        line, column = error.source.position(diagnostic.span.start)
        end_line, end_column = error.source.position(diagnostic.span.end)
        found.append(
            RequestProblem(
                message=diagnostic.message,
                hint=diagnostic.hint,
                line=line,
                column=column,
                end_line=end_line,
                end_column=end_column,
            )
        )
    return RefusedRequest(errors=found)


def columns_of_table(table: pa.Table | pa.Schema) -> list[ColumnType]:
    schema = table if isinstance(table, pa.Schema) else table.schema
    return [ColumnType(name=field.name, type=str(field.type)) for field in schema]


def answers_as_json(answers: Sequence[StatementAnswer]) -> Iterator[bytes]:
    """Yield answers as JSON in parts. Rows of an ad hoc query follow as they are computed."""
    begin = '{"answers": ['
    for index, answer in enumerate(answers):
        rows = answer.rows
        names = with_unique_names(rows.schema.empty_table()).schema if rows is not None else None
        columns = columns_of_table(names) if names is not None else None
        message = f"{answer.message} (warning: {answer.warning})" if answer.warning else answer.message
        body = AnswerBody(tag=answer.tag, message=message, columns=columns).model_dump_json()
        begin += ", " * (index > 0)
        if answer.rows is None:
            begin += body
            continue
        begin += f"{body.removesuffix(_NO_ROWS)}{_ROWS}["
        comma = ""
        while (batch := answer.rows.take(_ROWS_AT_ONCE)) is not None:
            yield f"{begin}{comma}{json_rows(pa.Table.from_batches([batch]))[1:-1]}".encode()
            begin, comma = "", ", "
        begin += "]}"
    yield f"{begin}]}}".encode()

"""One-line descriptions of statements, as `slicemill check` and SHOW print them."""

from __future__ import annotations

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.alert import Alert
from slicemill.catalog.catalog import (
    AlteredQuery,
    AlteredStream,
    DerivedStream,
    DroppedName,
    QueryDefinition,
    Setting,
    Statement,
    Stream,
    Table,
    TimestampKind,
)
from slicemill.catalog.extended import CalledDefinition, ComputedStream
from slicemill.catalog.function import FunctionDefinition
from slicemill.catalog.queries import SelectQuery
from slicemill.catalog.statements import LifecycleChange, Replay
from slicemill.errors import all_of
from slicemill.functions.render import timestamp_text
from slicemill.secrets import redact_address
from slicemill.time import BEGINNING, END, format_us
from slicemill.types import Schema


def describe(statement: Statement) -> tuple[str, str]:
    """Return the kind of a statement and a one-line summary of its declaration."""
    if isinstance(statement, Stream):
        text = f"{_column_list(statement)}; {_time(statement)}; from {statement.source}"
        return "stream", f"{text}{_retention_text(statement)}"
    if isinstance(statement, DerivedStream):
        return "stream", f"{_columns(statement.schema)}; from a query{_retention_text(statement)}"
    if isinstance(statement, (ComputedStream, CalledDefinition)):
        return statement.kind.lower(), statement.summary
    if isinstance(statement, Table):
        return "table", f"{_column_list(statement)}; {_rows_of(statement)}"
    if isinstance(statement, AggregateDefinition):
        return "aggregate", _aggregate(statement)
    if isinstance(statement, FunctionDefinition):
        return "function", _function(statement)
    if isinstance(statement, Alert):
        return "alert", _alert(statement)
    if isinstance(statement, Replay):
        return "replay", "bad rows, parsed again" if statement.outcome is None else str(statement.outcome)
    if isinstance(statement, (AlteredQuery, AlteredStream)):
        return "alter", describe(statement.after)[1]
    if isinstance(statement, DroppedName):
        return "drop", statement.kind.lower()
    if isinstance(statement, LifecycleChange):
        return statement.action.lower(), statement.kind.lower()
    if isinstance(statement, Setting):
        whom = f" for {statement.component}" if statement.component is not None else ""
        return "set", f"{statement.value}{whom}"
    if isinstance(statement, QueryDefinition):
        kind = "query" if statement.continuous else "ad hoc query"
        text = f"{_columns(statement.schema)}{_options(statement)}{_retention_text(statement)}"
        return kind, f"{text}{_start_text(statement)}"
    windowed = isinstance(statement.query, SelectQuery)
    return "view", f"{_columns(statement.schema)}; {'over windows of streams' if windowed else 'over tables'}"


def _columns(schema: Schema) -> str:
    return ", ".join(schema.names)


def _column_list(relation: Stream | Table) -> str:
    """Return the columns of a stream or table, with the units of numeric timestamps."""
    units = dict(relation.units)
    return ", ".join(
        f"{name} ({units[name].lower()})" if name in units else name for name in relation.schema.names
    )


def _rows_of(table: Table) -> str:
    key = f"key {', '.join(table.key)}; " if table.key else ""
    if table.owns_rows:
        return f"{key}rows from INSERT statements"
    if table.materialized is not None:
        return f"{key}current rows of changelog {table.materialized.name}"
    again = "" if table.refresh_us is None else f", every {format_us(table.refresh_us)}"
    return f"{key}from {table.source}{again}"


def _time(stream: Stream) -> str:
    if stream.kind is TimestampKind.EXTERNAL:
        return f"ordered by {stream.time_column}"
    return "ordered by arrival time" if stream.kind is TimestampKind.INTERNAL else "latent timestamps"


def _retention_text(statement: Stream | DerivedStream | QueryDefinition) -> str:
    return f"; retained for {format_us(statement.retain_us)}" if statement.retain_us is not None else ""


def _start_text(query: QueryDefinition) -> str:
    if query.begins_us is None:
        return ""
    words = {BEGINNING: "the beginning", END: "now"}
    return f"; from {words.get(query.begins_us) or timestamp_text(query.begins_us)}"


def _aggregate(definition: AggregateDefinition) -> str:
    words = ["algebraic"] if definition.algebraic else []
    words.append("window version" if definition.window else "base version")
    if not definition.window:
        words.append("blocking" if definition.blocking else "returns a result for each row")
    if definition.external is not None:
        words.append(f"in Python: {definition.external}")
    if definition.written:
        words.append(f"writes {all_of([one.into for one in definition.written if one.into is not None])}")
    return f"{definition.arguments} returns {_columns(definition.returns)}; {', '.join(words)}"


def _function(definition: FunctionDefinition) -> str:
    python = definition.external is not None
    meant = f"in Python: {definition.external}" if python else definition.body
    given = "rows of " * isinstance(definition.returns, Schema)
    return f"{definition.parameters} returns {given}{definition.returns}; {meant}"


def _alert(alert: Alert) -> str:
    what = f"when {alert.text}" if alert.condition is not None else "each commit of rows"
    held = f" for {format_us(alert.for_us)}" if alert.for_us else ""
    return f"on {alert.on}, {what}{held}"


def _options(query: QueryDefinition) -> str:
    options = query.options
    parts = [f"weight {options.weight:g}"] if options.weight != 1 else []
    shown = ("slo", "lag", "memory", "shedding", "sink")
    parts += [f"{name} {redact_address(str(value))}" for name in shown if (value := getattr(options, name))]
    return f"; {', '.join(parts)}" if parts else ""

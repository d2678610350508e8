"""`slicemill check`: list the statements of a script, or its errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from slicemill.cli.common import File, print_warnings, read

if TYPE_CHECKING:
    from rich.table import Table

    from slicemill.binder.script import BoundScript
    from slicemill.sql.errors import Diagnostic


def check(
    file: File,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print statements and errors as one JSON object.")
    ] = False,
    imports: Annotated[
        bool,
        typer.Option(
            "--import",
            help="Import and check the Python classes that the script names. Importing runs their code.",
        ),
    ] = False,
) -> None:
    """List the statements and warnings of a script, or its errors.

    Code that the script refers to does not run.
    """
    from rich.console import Console

    from slicemill.binder.script import bind_script
    from slicemill.sql.errors import EslError

    bound = bind_script(read(file), imports=imports)
    unverified = [] if imports else _python_names(bound)
    if as_json:
        typer.echo(json.dumps({**_check_json(bound), "unverified": unverified}, indent=2))
    elif not bound.diagnostics:
        Console().print(_statements_table(bound))
    if not as_json:
        print_warnings(bound)
        for note in _notes(bound):
            typer.echo(f"note: {bound.source.name}:{note['line']}: {note['message']}", err=True)
    if unverified and not as_json:
        typer.echo(
            f"not imported: {', '.join(unverified)}; whether these Python objects exist, have the "
            "required methods, and return a result for each row where a query has no window, "
            "is checked only with --import, which runs their code",
            err=True,
        )
    if bound.diagnostics:
        count = len(bound.diagnostics)
        if not as_json:
            typer.echo(f"{EslError(bound.source, bound.diagnostics)}\n", err=True)
            typer.echo(f"{count} error{'s' if count > 1 else ''} in {bound.source.name}", err=True)
        raise typer.Exit(1)


def _notes(bound: BoundScript) -> list[dict[str, object]]:
    """Return the calls that are evaluated row by row, with faster alternatives."""
    from slicemill.functions.render import render
    from slicemill.functions.row_only import calls_by_row

    notes: list[dict[str, object]] = []
    for statement, span in bound.statements:
        line, _ = bound.source.position(span.start)
        for call, hint in dict.fromkeys(calls_by_row(statement)):
            message = f"{render(call)} is evaluated row by row in Python, once for each distinct value"
            notes.append({"line": line, "message": f"{message}; write {hint}" if hint else message})
    return notes


def _python_names(bound: BoundScript) -> list[str]:
    """Return the Python classes and functions to which a script refers."""
    from slicemill.catalog.aggregates import AggregateDefinition
    from slicemill.catalog.extended import ComputedStream
    from slicemill.catalog.function import FunctionDefinition

    in_python = (AggregateDefinition, FunctionDefinition, ComputedStream)
    names = {entry.external for entry, _ in bound.statements if isinstance(entry, in_python)}
    return sorted(name for name in names if name is not None)


def _statements_table(bound: BoundScript) -> Table:
    from rich.table import Table

    from slicemill.explain.statements import describe

    table = Table("line", "kind", "name", "what", box=None, header_style="bold", pad_edge=False)
    for statement, span in bound.statements:
        line, _ = bound.source.position(span.start)
        kind, what = describe(statement)
        table.add_row(str(line), kind, statement.name, what)
    return table


def _check_json(bound: BoundScript) -> dict[str, object]:
    from slicemill.explain.statements import describe
    from slicemill.sql.errors import EslError

    statements = []
    for statement, span in bound.statements:
        line, column = bound.source.position(span.start)
        kind, what = describe(statement)
        statements.append(
            {"line": line, "column": column, "kind": kind, "name": statement.name, "what": what}
        )
    mistakes = EslError(bound.source, bound.diagnostics).diagnostics
    return {
        "file": bound.source.name,
        "statements": statements,
        "mistakes": [_diagnostic_json(bound, mistake) for mistake in mistakes],
        "warnings": [_diagnostic_json(bound, warning) for warning in bound.warnings],
        "notes": _notes(bound),
    }


def _diagnostic_json(bound: BoundScript, diagnostic: Diagnostic) -> dict[str, object]:
    line, column = bound.source.position(diagnostic.span.start)
    return {"line": line, "column": column, "message": diagnostic.message, "hint": diagnostic.hint}

"""Results and mistakes on a terminal."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slicemill_client import StatementMistake, StatementResult

_LONGEST = 60


class OutputFormat(StrEnum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"


def show_result(console: Console, result: StatementResult, form: OutputFormat = OutputFormat.table) -> None:
    """What a statement gave: its rows, or what it says."""
    if result.columns is None:
        if form is OutputFormat.table:
            console.print(Text(result.message or result.tag, style="dim"))
        return
    names = [name for name, _ in result.columns]
    if form is OutputFormat.json:
        for row in result.rows:
            console.out(json.dumps(row, ensure_ascii=False))
    elif form is OutputFormat.csv:
        console.out(_as_csv(names, result.rows), end="")
    elif names == ["plan"]:
        console.out("\n".join(row["plan"] for row in result.rows))
    else:
        console.print(rows_table(names, result.rows))
        console.print(Text(f"{len(result.rows):,} row{'' if len(result.rows) == 1 else 's'}", style="dim"))


def rows_table(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> Table:
    """Rows as a table; numbers stand to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        numeric = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        table.add_column(Text(name), justify="right" if numeric and rows else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    return table


def show_mistakes(console: Console, mistakes: Sequence[StatementMistake], text: str) -> None:
    """Every mistake below its line, underlined."""
    lines = text.splitlines()
    for mistake in mistakes:
        console.print(Text(f"error: {mistake.message}", style="bold red"))
        if mistake.line is not None and mistake.column is not None and mistake.line <= len(lines):
            line = lines[mistake.line - 1]
            end = mistake.end_column if mistake.end_line == mistake.line and mistake.end_column else len(line)
            marks = "^" * max(1, end - mistake.column)
            console.print(Text(f"  {line}"), soft_wrap=True)
            console.print(Text("  " + " " * (mistake.column - 1) + marks, style="red"), soft_wrap=True)
        if mistake.hint:
            console.print(Text(f"hint: {mistake.hint}", style="yellow"))


def _cell(value: object) -> Text:
    if value is None:
        return Text("NULL", style="dim")
    if isinstance(value, float):
        return Text(f"{value:,.6g}")
    return Text(json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value))


def _as_csv(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()

"""Display of results and errors on a terminal."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicemill_client import StatementMistake, StatementResult

_LONGEST_WORD = 16
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class OutputFormat(StrEnum):
    """Output format of rows."""

    table = "table"
    csv = "csv"
    json = "json"


def show_result(
    console: Console,
    result: StatementResult,
    form: OutputFormat = OutputFormat.table,
    header: bool = True,
) -> None:
    """Print the result of a statement: its rows or its message. `header` controls the CSV header."""
    if result.columns is None:
        if form is OutputFormat.table:
            console.print(Text(result.message or result.tag, style="dim"))
        return
    names = [name for name, _ in result.columns]
    count = len(result.rows)
    if form is OutputFormat.json:
        for row in result.rows:
            console.out(json.dumps(row, ensure_ascii=False))
    elif form is OutputFormat.csv:
        console.out(_as_csv(names, result.rows, header), end="")
    elif names == ["plan"]:
        console.out("\n".join(row["plan"] for row in result.rows))
    else:
        console.print(rows_table(listed_names(result), result.rows, console.width))
        console.print(Text(f"{count:,} row{'' if count == 1 else 's'}", style="dim"))
        if result.message:
            console.print(Text(result.message, style="dim"))


def column_widths(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the width that each column of a table needs without folding."""
    return {name: max(len(name), *(len(_cell(row[name]).plain) for row in rows)) for name in names}


def rows_table(
    names: Sequence[str],
    rows: Sequence[dict[str, Any]],
    width: int,
    least: Mapping[str, int] | None = None,
    header: bool = True,
) -> RenderableType:
    """Format rows as a table, or as one record per row if the table would cut words.

    Numbers are right-aligned. `least` has minimum widths of columns.
    """
    cells = {name: [_cell(row[name]) for row in rows] for name in names}
    gaps = 2 * (len(names) - 1)
    whole = {name: _needed([name], cells[name]) for name in names}
    broken = {name: _needed(_broken(name).split("\n"), cells[name]) for name in names}
    if gaps + sum(broken.values()) > width and rows:
        return Group(*(_record(number, names, cells) for number in range(len(rows))))
    headers_fit = gaps + sum(whole.values()) <= width
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for name in names:
        numeric = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        table.add_column(
            Text(name if headers_fit else _broken(name)),
            justify="right" if numeric and rows else "left",
            overflow="fold",
            min_width=None if least is None else least[name],
            no_wrap=numeric or all(_TIME.fullmatch(cell.plain) for cell in cells[name]),
        )
    for number in range(len(rows)):
        table.add_row(*(cells[name][number] for name in names))
    return table


def listed_names(result: StatementResult) -> list[str]:
    """Return the columns to show. Columns of SHOW that are NULL or 0 in all rows are hidden."""
    names = [name for name, _ in result.columns or []]
    if not result.tag.startswith("SHOW") or not result.rows:
        return names
    return [name for name in names if any(row[name] not in (None, 0) for row in result.rows)]


def _broken(name: str) -> str:
    """Break a header into lines after the underscores inside of it."""
    return name[:1] + name[1:].replace("_", "_\n")


def _needed(header: Sequence[str], cells: Sequence[Text]) -> int:
    """Return the width at which no word of a column is cut. Very long words may be cut, timestamps never."""
    words = [word for cell in cells for word in cell.plain.split()]
    times = (len(word) for word in words if _TIME.fullmatch(word))
    return max(min(max(map(len, [*header, *words]), default=0), _LONGEST_WORD), max(times, default=0))


def _record(number: int, names: Sequence[str], cells: dict[str, list[Text]]) -> Table:
    """Format one row with one line per value."""
    table = Table(
        box=None, pad_edge=False, show_header=False, title=f"row {number + 1}", title_justify="left"
    )
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(Text(name), cells[name][number])
    return table


def show_mistakes(console: Console, mistakes: Sequence[StatementMistake], text: str) -> None:
    """Print each error with its source line, underlined."""
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


def _as_csv(names: Sequence[str], rows: Sequence[dict[str, Any]], header: bool) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    """Convert a JSON value to a CSV cell in the format of the server."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, dict, list)) else value

"""Interactive shell of `slicemill sql`: reads, runs and displays statements.

Statements end with a semicolon, and commands start with a backslash.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from slicemill_client.connection import Connection
from slicemill_client.errors import ClientError, StatementMistake, StatementRefused
from slicemill_client.messages import StatementResult

# Display of results and errors


_LONGEST_WORD = 16
_TIME = re.compile(r"\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class OutputFormat(StrEnum):
    """Output format of rows: table, csv or json."""

    table = "table"
    csv = "csv"
    json = "json"


def show_result(
    console: Console,
    result: StatementResult,
    form: OutputFormat = OutputFormat.table,
    header: bool = True,
) -> None:
    """Print the result of a statement: its rows or its message.

    `header` controls the CSV header.
    """
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
        console.print(rows_table(visible_columns(result), result.rows, console.width))
        console.print(Text(f"{count:,} row{'' if count == 1 else 's'}", style="dim"))
        if result.message:
            console.print(Text(result.message, style="dim"))


def column_widths(names: Sequence[str], rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the width that each column of a table needs without line breaks in its cells."""
    return {name: max(len(name), *(len(_cell(row[name]).plain) for row in rows)) for name in names}


def rows_table(
    names: Sequence[str],
    rows: Sequence[dict[str, Any]],
    width: int,
    least: Mapping[str, int] | None = None,
    header: bool = True,
) -> RenderableType:
    """Format rows as a table, or as one record per row if the table is wider than the terminal.

    Numbers are right-aligned. `least` has the minimum widths of columns.
    """
    cells = {name: [_cell(row[name]) for row in rows] for name in names}
    gaps = 2 * (len(names) - 1)
    whole = {name: _column_width([name], cells[name]) for name in names}
    broken = {name: _column_width(_wrap_header(name).split("\n"), cells[name]) for name in names}
    if gaps + sum(broken.values()) > width and rows:
        return Group(*(_record(number, names, cells) for number in range(len(rows))))
    headers_fit = gaps + sum(whole.values()) <= width
    table = Table(box=None, pad_edge=False, header_style="bold", show_header=header)
    for name in names:
        numeric = all(isinstance(row[name], (int, float, type(None))) for row in rows)
        table.add_column(
            Text(name if headers_fit else _wrap_header(name)),
            justify="right" if numeric and rows else "left",
            overflow="fold",
            min_width=None if least is None else least[name],
            no_wrap=numeric or all(_TIME.fullmatch(cell.plain) for cell in cells[name]),
        )
    for number in range(len(rows)):
        table.add_row(*(cells[name][number] for name in names))
    return table


def visible_columns(result: StatementResult) -> list[str]:
    """Return the columns to display. For SHOW, columns with only NULL or 0 are hidden."""
    names = [name for name, _ in result.columns or []]
    if not result.tag.startswith("SHOW") or not result.rows:
        return names
    return [name for name in names if any(row[name] not in (None, 0) for row in result.rows)]


def _wrap_header(name: str) -> str:
    """Break a column header into lines after its inner underscores."""
    return name[:1] + name[1:].replace("_", "_\n")


def _column_width(header: Sequence[str], cells: Sequence[Text]) -> int:
    """Return the width at which no word is broken, except words of more than 16 characters."""
    words = [word for cell in cells for word in cell.plain.split()]
    times = (len(word) for word in words if _TIME.fullmatch(word))
    return max(min(max(map(len, [*header, *words]), default=0), _LONGEST_WORD), max(times, default=0))


def _record(number: int, names: Sequence[str], cells: dict[str, list[Text]]) -> Table:
    """Format one row as a record with one line per value."""
    table = Table(
        box=None, pad_edge=False, show_header=False, title=f"row {number + 1}", title_justify="left"
    )
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name in names:
        table.add_row(Text(name), cells[name][number])
    return table


def print_errors(console: Console, mistakes: Sequence[StatementMistake], text: str) -> None:
    """Print each error with its source line, in which the error is underlined."""
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
    """Convert a JSON value to a CSV field, in the same way as the server does."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, dict, list)) else value


COMMANDS = {
    "\\?": "list of commands",
    "\\d": "streams and queries; \\d NAME shows the columns of one of them",
    "\\watch": "\\watch NAME prints new results of a query until ctrl-c",
    "\\plan": "plan of all queries; \\plan NAME shows the plan of one query",
    "\\i": "\\i FILE runs the statements of a file",
    "\\q": "quit the shell",
}


class QuitShell(Exception):
    """Raised when the user has entered the command to quit."""


class Shell:
    """Shell that runs statements and commands against a server."""

    def __init__(
        self, connection: Connection, console: Console, form: OutputFormat = OutputFormat.table
    ) -> None:
        self._connection = connection
        self._console = console
        self._form = form

    def run(self, text: str) -> bool:
        """Run statements or a shell command. Return False if there are errors.

        The quit command raises QuitShell.
        """
        text = text.strip()
        if not text:
            return True
        try:
            if text.startswith("\\"):
                self._command(text)
            else:
                for result in self._connection.execute(text):
                    show_result(self._console, result, self._form)
        except StatementRefused as refused:
            print_errors(self._console, refused.mistakes, text)
            return False
        except (ClientError, OSError) as problem:
            self._console.print(Text(str(problem), style="bold red"))
            return False
        return True

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        rest = rest.strip().rstrip(";")
        if name == "\\q":
            raise QuitShell
        if name == "\\d":
            self.run(f"DESCRIBE {rest}" if rest else "SHOW STREAMS; SHOW QUERIES")
        elif name == "\\plan":
            self.run(f"EXPLAIN {rest}".strip())
        elif name == "\\watch" and rest:
            self.watch(rest)
        elif name == "\\i" and rest:
            self.run(Path(rest).read_text(encoding="utf-8"))
        else:
            for command, what in COMMANDS.items():
                self._console.print(Text.assemble((f"{command:<8}", "bold"), what))

    def watch(
        self, query: str, stopped: Callable[[], bool] = lambda: False, since: int | None = None
    ) -> None:
        """Print new results of a query until ctrl-c.

        `since` is the first epoch to print; default: only new results.
        """
        known = self._connection.queries.get(query)
        if known is None:
            self.run(f"DESCRIBE {query}")  # DESCRIBE prints the error
            return
        if self._form is OutputFormat.table:
            self._console.print(Text(f"new results of {query}; stop with ctrl-c", style="dim"))
        widths: dict[str, int] = {}
        try:
            for rows in known.follow_json(since, stopped):
                if rows.rows:
                    widths = self._show_more(rows.rows, widths)
        except KeyboardInterrupt:
            if self._form is OutputFormat.table:
                self._console.print()

    def _show_more(self, rows: Sequence[dict[str, Any]], widths: dict[str, int]) -> dict[str, int]:
        """Print further rows of a query. Return the widths of their columns.

        The header is printed again if the columns change or a column becomes wider.
        """
        names = list(rows[0])
        same = names == list(widths)
        if self._form is not OutputFormat.table:
            result = StatementResult("", "", [(name, "") for name in names], list(rows))
            show_result(self._console, result, self._form, header=not same)
            return dict.fromkeys(names, 0)
        needed = column_widths(names, rows)
        if same:
            needed = {name: max(needed[name], widths[name]) for name in names}
        fits = sum(needed.values()) + 2 * (len(names) - 1) <= self._console.width
        header = not fits or needed != widths
        self._console.print(rows_table(names, rows, self._console.width, needed if fits else None, header))
        return needed


def is_complete(text: str) -> bool:
    """Return True if the input can be run.

    Complete input is empty, a shell command, or ends with a semicolon or brace.
    """
    stripped = text.strip()
    return not stripped or stripped.startswith("\\") or re.search(r"[;}]\s*$", stripped) is not None


def interact(connection: Connection, console: Console) -> None:
    """Run the interactive shell until the user quits."""
    shell = Shell(connection, console)
    names = ServerNames(connection)
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=WordCompleter(names, COMMANDS),
        complete_while_typing=False,
        multiline=True,
        key_bindings=_enter_runs(),
        prompt_continuation="      ... ",
    )
    console.print(Text(f"slicemill at {connection.url}; \\? lists the commands, \\q quits", style="dim"))
    while True:
        try:
            shell.run(session.prompt("slicemill> "))
        except KeyboardInterrupt:
            continue
        except (EOFError, QuitShell):
            return


def _enter_runs() -> KeyBindings:
    """Let the enter key run complete input, and otherwise start a new line."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    """Return the history of the user's input, in a file that only this user can read."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "slicemill" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        print(f"{file} cannot be written, so the input history is not saved", file=sys.stderr)
        return InMemoryHistory()
    return FileHistory(str(file))


# Completion of keywords and of names in the server's catalog


KEYWORDS = (
    *("CREATE STREAM", "CREATE QUERY", "CREATE TABLE", "CREATE VIEW", "CREATE AGGREGATE", "CREATE MODEL"),
    *(
        "CREATE FUNCTION",
        "DROP QUERY",
        "DROP STREAM",
        "DROP TABLE",
        "DROP VIEW",
        "PAUSE QUERY",
        "RESUME QUERY",
    ),
    *("ALTER QUERY", "ALTER STREAM", "RESTART QUERY", "PAUSE STREAM", "RESUME STREAM"),
    *("SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "JOIN", "LEFT JOIN", "ON"),
    *(
        "OVER",
        "PARTITION BY",
        "RANGE",
        "ROWS",
        "PRECEDING",
        "SLIDE",
        "UNION",
        "WITH",
        "AS",
        "AND",
        "OR",
        "NOT",
    ),
    *(
        "IN",
        "LIKE",
        "BETWEEN",
        "IS NULL",
        "SLACK",
        "SKEW",
        "RETAIN",
        "FROM BEGINNING",
        "SOURCE",
        "SET policy",
        "REPLAY",
    ),
    *("SHOW STREAMS", "SHOW QUERIES", "SHOW TABLES", "SHOW VIEWS", "SHOW AGGREGATES", "SHOW MODELS"),
    *("SHOW FUNCTIONS", "SHOW SETTINGS", "SHOW STATEMENTS", "SHOW CREATE", "DESCRIBE", "EXPLAIN"),
)
_WORD = re.compile(r"[\w\\]+$")
_ASKED_EVERY_S = 5.0


class ServerNames:
    """Names of the server's streams, tables, queries and columns, cached for some seconds."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection = connection
        self._clock = clock
        self._names: list[str] = []
        self._asked_s = float("-inf")

    def __call__(self) -> list[str]:
        if self._clock() - self._asked_s > _ASKED_EVERY_S:
            self._asked_s = self._clock()
            try:
                declared = self._connection.request("GET", "/v1/catalog").json()
                known = self._connection.request("GET", "/v1/words").json()["relations"]
                columns = [column["name"] for relation in known for column in relation["columns"]]
                self._names = [*(entry["name"] for entry in declared), *columns]
            except ClientError:
                self._names = []
        return self._names


class WordCompleter(Completer):
    """Completion of the word before the cursor: keywords, catalog names, shell commands."""

    def __init__(self, names: Callable[[], Iterable[str]], commands: Iterable[str] = ()) -> None:
        self._names = names
        self._commands = tuple(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        found = _WORD.search(document.text_before_cursor)
        if found is None:
            return
        word = found[0]
        if word.startswith("\\"):
            candidates: Iterable[str] = self._commands
        else:
            candidates = (*self._names(), *KEYWORDS)
        for candidate in dict.fromkeys(candidates):
            if candidate.lower().startswith(word.lower()) and candidate.lower() != word.lower():
                yield Completion(candidate, start_position=-len(word))

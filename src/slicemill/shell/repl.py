"""Read-eval-print loop of the shell: statements end with a semicolon, commands start with a backslash."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from rich.console import Console
from rich.text import Text

from slicemill.shell.completion import ServerNames, WordCompleter
from slicemill.shell.display import OutputFormat, column_widths, rows_table, show_mistakes, show_result
from slicemill_client import ClientError, Connection, StatementRefused, StatementResult

COMMANDS = {
    "\\?": "this list",
    "\\d": "streams and queries; \\d NAME its columns",
    "\\watch": "\\watch NAME shows results of a query as they come, until ctrl-c",
    "\\plan": "how all queries run; \\plan NAME one of them",
    "\\i": "\\i FILE runs the statements of a file",
    "\\q": "leave",
}


class Leave(Exception):
    """The user has entered the command to quit."""


class Shell:
    """Runs statements and shell commands against a server."""

    def __init__(
        self, connection: Connection, console: Console, form: OutputFormat = OutputFormat.table
    ) -> None:
        self._connection = connection
        self._console = console
        self._form = form

    def run(self, text: str) -> bool:
        """Run statements or a shell command. Return False on errors. Raises Leave for the quit command."""
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
            show_mistakes(self._console, refused.mistakes, text)
            return False
        except (ClientError, OSError) as problem:
            self._console.print(Text(str(problem), style="bold red"))
            return False
        return True

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        rest = rest.strip().rstrip(";")
        if name == "\\q":
            raise Leave
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
        """Print new results of a query until ctrl-c, from epoch `since` on or only new ones."""
        known = self._connection.queries.get(query)
        if known is None:
            self.run(f"DESCRIBE {query}")  # prints the error
            return
        if self._form is OutputFormat.table:
            self._console.print(Text(f"results of {query}; ctrl-c ends", style="dim"))
        widths: dict[str, int] = {}
        try:
            for rows in known.follow(since, stopped):
                if rows.rows:
                    widths = self._show_more(rows.rows, widths)
        except KeyboardInterrupt:
            if self._form is OutputFormat.table:
                self._console.print()

    def _show_more(self, rows: Sequence[dict[str, Any]], widths: dict[str, int]) -> dict[str, int]:
        """Print further rows of a query and return the widths of their columns.

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


def is_whole(text: str) -> bool:
    """Return True for complete input: a shell command, nothing, or statements up to a semicolon or brace."""
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
    console.print(Text(f"slicemill at {connection.url}; \\? helps, \\q leaves", style="dim"))
    while True:
        try:
            shell.run(session.prompt("slicemill> "))
        except KeyboardInterrupt:
            continue
        except (EOFError, Leave):
            return


def _enter_runs() -> KeyBindings:
    """Bind the enter key: run complete input, and insert a line break otherwise."""
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_whole(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    """Return the input history, in a file that only this user can read."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(state) / "slicemill" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        print(f"{file} cannot be written: nothing is remembered", file=sys.stderr)
        return InMemoryHistory()
    return FileHistory(str(file))

"""`slicemill sql`: interactive SQL shell for a server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from slicemill.errors import SlicemillError

URL_HELP = "URL of the server, for example http://host:8080."
Url = Annotated[str, typer.Argument(metavar="[URL]", envvar="SLICEMILL_URL", help=URL_HELP)]
Token = Annotated[
    str | None, typer.Option(envvar="SLICEMILL_TOKEN", help="Access token, if the server requires one.")
]
DEFAULT_URL = "http://127.0.0.1:8080"


def sql(
    url: Url = DEFAULT_URL,
    command: Annotated[
        str | None,
        typer.Option("--command", "-c", metavar="STATEMENTS", help="Run these statements and exit."),
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Run the statements in this file and exit.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="Output format: table, csv or json.")] = "table",
    token: Token = None,
) -> None:
    """Open an SQL shell on a server, or run statements.

    On a terminal the shell has history and completion (tab). Without a terminal, statements are read from -c,
    a file or standard input, and the exit status is 1 if a statement was rejected.
    """
    from rich.console import Console

    from slicemill.cli.shell import OutputFormat, QuitShell, Shell, interact
    from slicemill_client.connection import connect

    if form not in tuple(OutputFormat):
        raise SlicemillError(f"there is no output format {form}; use one of {', '.join(OutputFormat)}")
    with connect(url, token) as connection:
        if command is None and file is None and sys.stdin.isatty():
            interact(connection, Console())
            return
        text = command if command is not None else _text(file)
        try:
            done = Shell(connection, Console(soft_wrap=form != "table"), OutputFormat(form)).run(text)
        except QuitShell:
            return
    if not done:
        raise typer.Exit(1)


def _text(file: Path | None) -> str:
    from slicemill.cli.common import read

    return read(file if file is not None else Path("-")).text

"""`slicemill query ls|add|drop|pause|tail|explain …` and `slicemill status`: commands for a server."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from slicemill.cli.sql import DEFAULT_URL, URL_HELP, Token
from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from slicemill.cli.shell import Shell
    from slicemill_client.connection import Connection

query_app = typer.Typer(help="List, add, change or drop the queries of a server.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the query.")]
UrlOption = Annotated[str, typer.Option("--url", envvar="SLICEMILL_URL", help=URL_HELP)]


def _run(url: str, token: str | None, text: str) -> None:
    from slicemill_client.connection import connect

    with connect(url, token) as connection:
        if not _shell(connection).run(text):
            raise typer.Exit(1)


def _shell(connection: Connection) -> Shell:
    from rich.console import Console

    from slicemill.cli.shell import Shell

    return Shell(connection, Console())


@query_app.command("ls", epilog="Example: slicemill query ls")
def list_queries(url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """List the queries with their states and metrics."""
    _run(url, token, "SHOW QUERIES")


@query_app.command("add", epilog='Example: slicemill query add dear "SELECT item FROM bid WHERE price > 100"')
def add_query(
    name: Name,
    select: Annotated[
        str, typer.Argument(help="SELECT statement of the query; - reads it from standard input.")
    ],
    url: UrlOption = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Create a query that runs until it is dropped."""
    text = sys.stdin.read() if select == "-" else select
    _run(url, token, f"CREATE QUERY {_quote_name(name)} AS {text}")


@query_app.command("drop", epilog="Example: slicemill query drop dear")
def drop_query(name: Name, url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """Drop a query and delete its results."""
    _run(url, token, f"DROP QUERY {_quote_name(name)}")


@query_app.command("pause", epilog="Example: slicemill query pause dear")
def pause_query(name: Name, url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """Pause a query.

    A paused query emits no results until it is resumed. No input is lost.
    """
    _run(url, token, f"PAUSE QUERY {_quote_name(name)}")


@query_app.command("resume", epilog="Example: slicemill query resume dear")
def resume_query(name: Name, url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """Resume a paused query. The query first processes the rows that arrived during the pause."""
    _run(url, token, f"RESUME QUERY {_quote_name(name)}")


@query_app.command("replace", epilog='Example: slicemill query replace dear "SELECT item FROM bid" --dry-run')
def replace_query(
    name: Name,
    select: Annotated[str, typer.Argument(help="New SELECT statement; - reads it from standard input.")],
    dry_run: Annotated[
        bool, typer.Option(help="Only list which state would be kept and which would be lost.")
    ] = False,
    url: UrlOption = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Replace the definition of a query. State that the new definition can use is kept."""
    text = sys.stdin.read() if select == "-" else select
    words = "EXPLAIN REPLACE" if dry_run else "CREATE OR REPLACE"
    _run(url, token, f"{words} QUERY {_quote_name(name)} AS {text}")


@query_app.command("restart", epilog="Example: slicemill query restart dear")
def restart_query(name: Name, url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """Restart a failed query."""
    _run(url, token, f"RESTART QUERY {_quote_name(name)}")


@query_app.command("explain", epilog="Example: slicemill query explain hot_items")
def explain_query(name: Name, url: UrlOption = DEFAULT_URL, token: Token = None) -> None:
    """Show the plan of a query, and the operators that it shares with other queries."""
    _run(url, token, f"EXPLAIN {_quote_name(name)}")


@query_app.command("tail", epilog="Example: slicemill query tail hot_items --format json")
def tail(
    name: Name,
    form: Annotated[str, typer.Option("--format", help="Output format: table, csv or json.")] = "table",
    since: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="First epoch (commit number) to print; 0 prints all stored results. Default: new results.",
        ),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Print new results of a query until ctrl-c."""
    from rich.console import Console

    from slicemill.cli.shell import OutputFormat, Shell
    from slicemill_client.connection import connect

    with connect(url, token) as connection:
        Shell(connection, Console(), OutputFormat(form)).watch(name, since=since)


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def status(
    url: Annotated[str, typer.Argument(metavar="[URL]", envvar="SLICEMILL_URL", help=URL_HELP)] = DEFAULT_URL,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh the output every second.")] = False,
    token: Token = None,
) -> None:
    """Show the streams, queries and problems of a server."""
    import time
    from contextlib import suppress

    from rich.console import Console
    from rich.live import Live

    from slicemill_client.connection import connect
    from slicemill_client.errors import ClientError

    console = Console()
    with connect(url, token) as connection:
        try:
            if not watch:
                console.print(_status(connection, console.width))
                return
            with Live(console=console, screen=False, auto_refresh=False) as live, suppress(KeyboardInterrupt):
                while True:
                    live.update(_status(connection, console.width), refresh=True)
                    time.sleep(1)
        except ClientError as problem:
            raise SlicemillError(str(problem)) from None


def _status(connection: Connection, width: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from slicemill.cli.shell import rows_table, visible_columns

    health = connection.health()
    state = "running" if health["ready"] else "not running"
    parts: list[RenderableType] = [
        Text(f"slicemill {health['version']} at {connection.url}: {state}", "bold")
    ]
    parts += [Text(problem, style="red") for problem in health["problems"]]
    for result in connection.execute("SHOW STREAMS; SHOW QUERIES"):
        parts += ["", rows_table(visible_columns(result), result.rows, width)]
    return Group(*parts)

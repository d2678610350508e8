"""`slicemill token add|ls|drop`: manage the access tokens of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

token_app = typer.Typer(help="Manage the access tokens of a server.", no_args_is_help=True)

HomeFolder = Annotated[Path, typer.Option("--home", help="Home directory of the server.")]


@token_app.command("add", epilog="Example: slicemill token add ann --role operator --home work")
def add_token(
    name: Annotated[str, typer.Argument(help="Name of the user or program that gets the token.")],
    home: HomeFolder,
    role: Annotated[str, typer.Option(help="Role: reader, operator or admin.")] = "reader",
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--name",
            metavar="PATTERN",
            help="Restrict the token to streams and queries with such names, for example 'sales_*'.",
        ),
    ] = None,
) -> None:
    """Create a token and print it. Only a hash of the token is stored."""
    from slicemill.server.auth import Access
    from slicemill.time import wall_clock_us

    typer.echo(Access(home).add(name, role, names or (), wall_clock_us()))


@token_app.command("ls", epilog="Example: slicemill token ls --home work")
def list_tokens(home: HomeFolder) -> None:
    """List the tokens with their roles and permitted names."""
    from rich.console import Console

    from slicemill.cli.shell import rows_table
    from slicemill.server.auth import Access

    rows = [
        {"name": entry["name"], "role": entry["role"], "names": " ".join(entry["names"]) or "all"}
        for entry in Access(home).entries()
    ]
    console = Console()
    console.print(rows_table(["name", "role", "names"], rows, console.width))


@token_app.command("drop", epilog="Example: slicemill token drop ann --home work")
def drop_token(
    name: Annotated[str, typer.Argument(help="Name of the token's user.")], home: HomeFolder
) -> None:
    """Revoke a token. Requests with the token are rejected from now on."""
    from slicemill.server.auth import Access

    access = Access(home)
    access.drop(name)
    if not access.entries():
        typer.echo("no token is left, so the server rejects all requests until you add one", err=True)

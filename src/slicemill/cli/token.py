"""`slicemill token add|ls|drop`: manage the access tokens of a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

token_app = typer.Typer(help="Tokens: who may use the server of a home.", no_args_is_help=True)

HomeFolder = Annotated[Path, typer.Option("--home", help="The home of the server.")]


@token_app.command("add", epilog="Example: slicemill token add ann --role operator --home work")
def add_token(
    name: Annotated[str, typer.Argument(help="Whose token it is.")],
    home: HomeFolder,
    role: Annotated[str, typer.Option(help="reader, operator or admin.")] = "reader",
    names: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="PATTERN", help="Only what has such a name, as in 'sales_*'."),
    ] = None,
) -> None:
    """Create a token and print it. Only its hash is stored."""
    from slicemill.server.auth import Access
    from slicemill.time import wall_clock_us

    typer.echo(Access(home).add(name, role, names or (), wall_clock_us()))


@token_app.command("ls", epilog="Example: slicemill token ls --home work")
def list_tokens(home: HomeFolder) -> None:
    """List the tokens with their roles."""
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
def drop_token(name: Annotated[str, typer.Argument(help="Whose token.")], home: HomeFolder) -> None:
    """Revoke a token. It takes effect at once."""
    from slicemill.server.auth import Access

    access = Access(home)
    access.drop(name)
    if not access.entries():
        typer.echo(
            "no token is left: the server of this home rejects all requests until you add one", err=True
        )

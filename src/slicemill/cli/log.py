"""`slicemill log`: inspect the logs of a home."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

log_app = typer.Typer(help="Look into the logs of a home.", no_args_is_help=True)


@log_app.callback()
def logs() -> None:
    """Look into the logs of a home."""


@log_app.command("ls", epilog="Example: slicemill log ls --home work")
def list_logs(home: Annotated[Path, typer.Option(help="The home of a mill.")]) -> None:
    """Show what the logs of a home hold: streams, derived streams and results."""
    from rich.console import Console

    from slicemill.engine.console import logs_table

    Console().print(logs_table(home))

"""`slicemill state`: what the queries of a home keep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def state(home: Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")]) -> None:
    """Show what queries keep of their streams: rows, bytes and ages, by slice and by query."""
    from rich.console import Console

    from slicemill.engine.state_view import state_tables

    for table in state_tables(home):
        Console().print(table)

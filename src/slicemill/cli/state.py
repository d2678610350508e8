"""`slicemill state`: show the stored state of the queries of a home."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def state(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: slices, and the values of models.")
    ] = False,
) -> None:
    """Show what queries keep of their streams: rows, bytes and ages, by slice and by query."""
    if as_json:
        from slicemill.engine.model_view import model_values_of
        from slicemill.engine.state_view import slices_of

        slices = [asdict(held) for held in slices_of(home)]
        typer.echo(json.dumps({"slices": slices, "models": model_values_of(home)}, ensure_ascii=False))
        return
    from rich.console import Console

    from slicemill.engine.state_view import state_tables

    for table in state_tables(home):
        Console().print(table)

"""`slicemill lab` and `slicemill bench`: commands of the separate distribution slicemill-lab.

slicemill-lab declares the commands as entry points of the group `slicemill.commands`. Entry points are
looked up when one of the commands is called, because a search of all installed packages would slow down
other commands.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import typer

GROUP = "slicemill.commands"
FORWARDS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""Options of a command that forwards all of its arguments, including `--help`."""


def lab(context: typer.Context) -> None:
    """Run published experiments and check their claims (requires slicemill-lab)."""
    _forward("lab", context)


def bench(context: typer.Context) -> None:
    """Compare slicemill with other systems, and check performance claims (requires slicemill-lab)."""
    _forward("bench", context)


def _forward(name: str, context: typer.Context) -> None:
    found = entry_points(group=GROUP, name=name)
    if not found:
        typer.echo(
            f"error: the command slicemill {name} requires slicemill-lab, which is not installed; "
            "install it with `pip install slicemill-lab` (in the repository: `make venv`)",
            err=True,
        )
        raise typer.Exit(2)
    command: typer.Typer = next(iter(found)).load()
    command(args=context.args, prog_name=f"slicemill {name}")

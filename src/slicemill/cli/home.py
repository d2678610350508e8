"""`slicemill home`, `slicemill log` and `slicemill state`: inspect and maintain a home directory.

A home directory stores the declarations, logs and state of one engine.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

home_app = typer.Typer(help="Check, repair, back up or upgrade a home directory.", no_args_is_help=True)

HomeFolder = Annotated[
    Path, typer.Argument(metavar="HOME", help="Home directory of slicemill: queries, results and state.")
]


@home_app.command(epilog="Example: slicemill home check work")
def check(home: HomeFolder) -> None:
    """Verify all files of a home directory, and list missing or damaged files."""
    from rich.console import Console

    from slicemill.connectors.stored_files import source_errors
    from slicemill.storage.check import check_home

    with Console(stderr=True).status("checking") as status:
        report = check_home(home, progress=status.update)
        report.errors += source_errors(home)
    typer.echo(f"{home}: format {report.format}, commit {report.epoch}, {report.statements} statements")
    typer.echo(f"{report.logs} logs, {report.rows:,} rows, {report.bytes:,} bytes; {report.tasks} tasks")
    if report.torn:
        typer.echo(f"{report.torn} bytes of an incomplete commit; the next start removes them")
    if report.unverified:
        typer.echo(f"{report.unverified:,} blocks and files have no checksum and were not verified")
    for mistake in report.errors:
        typer.echo(mistake, err=True)
    if report.errors:
        typer.echo(
            f"restore a copy, or remove the damaged parts with 'slicemill home repair {home}'", err=True
        )
        raise typer.Exit(1)
    typer.echo("no damage found")


@home_app.command(epilog="Example: slicemill home repair work")
def repair(home: HomeFolder) -> None:
    """Drop the damaged parts of a home directory, and list the losses.

    No server or other slicemill process may use the home directory. If there is a copy of the home directory,
    restore the copy instead.
    """
    from rich.console import Console

    from slicemill.connectors.stored_files import repair_sources
    from slicemill.storage.check import repair_home

    with Console(stderr=True).status("repairing") as status:
        done = [*repair_home(home, status.update), *repair_sources(home)]
    for line in done:
        typer.echo(line)
    typer.echo(f"{home} can be used again, without the lost parts" if done else "no damage found")


@home_app.command(epilog="Example: slicemill home backup work /backup/work-monday")
def backup(
    home: HomeFolder,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="Folder for the copy, which must not exist yet.")
    ],
) -> None:
    """Copy a home directory that no engine uses at the moment, and check the copy."""
    from rich.console import Console

    from slicemill.storage.backup import backup_home

    with Console(stderr=True).status("copying") as status:
        report = backup_home(home, target, status.update)
    typer.echo(f"{target}: commit {report.epoch}, {report.rows:,} rows; no damage found")


@home_app.command(epilog="Example: slicemill home upgrade work")
def upgrade(home: HomeFolder) -> None:
    """Upgrade a home directory of an older slicemill to the current format."""
    from slicemill.storage.backup import upgrade_home

    typer.echo(upgrade_home(home))


# `slicemill log`: logs of a home directory


log_app = typer.Typer(
    help="Inspect the logs (stored rows of streams and results) of a home directory.", no_args_is_help=True
)


@log_app.callback()
def logs() -> None:
    """Inspect the logs (stored rows of streams and results) of a home directory."""


@log_app.command("ls", epilog="Example: slicemill log ls --home work")
def list_logs(
    home: Annotated[Path, typer.Option(help="Home directory of slicemill: queries, results and state.")],
) -> None:
    """List the logs of streams, derived streams and results, with rows, bytes and time range."""
    from rich.console import Console

    from slicemill.cli.live_table import logs_table

    Console().print(logs_table(home))


# `slicemill state`: stored state of queries


def state(
    home: Annotated[
        Path, typer.Argument(metavar="HOME", help="Home directory of slicemill: queries, results and state.")
    ],
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one JSON object with the state slices and the values of models."),
    ] = False,
) -> None:
    """Show the stored state of queries: rows, bytes and ages, by slice and query."""
    if as_json:
        from slicemill.extension import live_values, load
        from slicemill.runtime.state_view import slices_of

        slices = [asdict(held) for held in slices_of(home)]
        values = {live.name: load(live.read)(home, None) for live in live_values()}
        typer.echo(json.dumps({"slices": slices, **values}, ensure_ascii=False))
        return
    from rich.console import Console

    from slicemill.runtime.state_view import state_tables

    for table in state_tables(home):
        Console().print(table)

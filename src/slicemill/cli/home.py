"""`slicemill home`, `slicemill log` and `slicemill state`: inspect and maintain a home."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

home_app = typer.Typer(help="Look after the home of a mill.", no_args_is_help=True)

HomeFolder = Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")]


@home_app.command(epilog="Example: slicemill home check work")
def check(home: HomeFolder) -> None:
    """Verify all files of a home, and list missing or damaged files."""
    from rich.console import Console

    from slicemill.connectors.stored_files import source_errors
    from slicemill.storage.check import check_home

    with Console(stderr=True).status("checking") as status:
        report = check_home(home, progress=status.update)
        report.errors += source_errors(home)
    typer.echo(f"{home}: FORMAT {report.format}, epoch {report.epoch}, {report.statements} statements")
    typer.echo(f"{report.logs} logs, {report.rows:,} rows, {report.bytes:,} bytes; {report.tasks} tasks")
    if report.torn:
        typer.echo(f"{report.torn} bytes of a commit that did not end; the next start cuts them off")
    if report.unverified:
        typer.echo(f"{report.unverified:,} blocks and files were written without a checksum: unverified")
    for mistake in report.errors:
        typer.echo(mistake, err=True)
    if report.errors:
        typer.echo(f"'slicemill home repair {home}' continues without what is damaged", err=True)
        raise typer.Exit(1)
    typer.echo("everything is there")


@home_app.command(epilog="Example: slicemill home repair work")
def repair(home: HomeFolder) -> None:
    """Drop the damaged parts of a home, and list the losses.

    No mill may run in the home. If there is a copy of the home, restore the copy instead.
    """
    from rich.console import Console

    from slicemill.connectors.stored_files import repair_sources
    from slicemill.storage.check import repair_home

    with Console(stderr=True).status("repairing") as status:
        done = [*repair_home(home, status.update), *repair_sources(home)]
    for line in done:
        typer.echo(line)
    typer.echo(f"{home} continues without what is lost" if done else "everything is there")


@home_app.command(epilog="Example: slicemill home backup work /backup/work-monday")
def backup(
    home: HomeFolder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A folder that does not exist yet.")],
) -> None:
    """Copy a home without a running mill, and check the copy."""
    from rich.console import Console

    from slicemill.storage.backup import backup_home

    with Console(stderr=True).status("copying") as status:
        report = backup_home(home, target, status.update)
    typer.echo(f"{target}: epoch {report.epoch}, {report.rows:,} rows; everything is there")


@home_app.command(epilog="Example: slicemill home upgrade work")
def upgrade(home: HomeFolder) -> None:
    """Upgrade a home of an older slicemill to the current format."""
    from slicemill.storage.backup import upgrade_home

    typer.echo(upgrade_home(home))


# `slicemill log`: inspect the logs of a home.


log_app = typer.Typer(help="Look into the logs of a home.", no_args_is_help=True)


@log_app.callback()
def logs() -> None:
    """Inspect the logs of a home."""


@log_app.command("ls", epilog="Example: slicemill log ls --home work")
def list_logs(home: Annotated[Path, typer.Option(help="The home of a mill.")]) -> None:
    """List the logs of a home: streams, derived streams and results."""
    from rich.console import Console

    from slicemill.cli.live_table import logs_table

    Console().print(logs_table(home))


# `slicemill state`: show the stored state of the queries of a home.


def state(
    home: Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object: slices, and the values of models.")
    ] = False,
) -> None:
    """Show the stored state: rows, bytes and ages, by slice and query."""
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

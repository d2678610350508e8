"""`slicemill lab list | run`: the published experiments, run here, with their claims checked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from slicemill_lab.cli import Scale

if TYPE_CHECKING:
    from slicemill_lab.experiment import Experiment

lab_app = typer.Typer(
    help="Run published experiments and check their claims.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@lab_app.command("list")
def list_experiments() -> None:
    """Show every experiment with its title."""
    from rich.console import Console
    from rich.table import Table

    from slicemill_lab.registry import experiment_ids, load

    table = Table("id", "title")
    for experiment_id in experiment_ids():
        table.add_row(experiment_id, load(experiment_id).title)
    Console().print(table)


@lab_app.command("run")
def run_experiments(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Such as mill-E1.")] = None,
    run_all: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per experiment.")] = False,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Write one image each to DIR.")] = None,
    scale: Annotated[Scale, typer.Option(help="small ends within a minute.")] = Scale.small,
    seed: Annotated[int, typer.Option(help="Where the random numbers start.")] = 1,
) -> None:
    """Run experiments and check their claims; the exit status is 1 when one does not hold."""
    from rich.console import Console

    from slicemill_lab.experiment import to_json
    from slicemill_lab.progress import running
    from slicemill_lab.report import claims_table

    # With --json the tables go to the error stream: standard output is then JSON lines and nothing else.
    console = Console(stderr=as_json)
    holds = True
    for experiment in _chosen(ids or [], run_all):
        with running(experiment.id, console):
            result = experiment.run(seed, scale.value)
        console.print(claims_table(f"{experiment.id}: {experiment.title}", result))
        if plot is not None:
            plot.mkdir(parents=True, exist_ok=True)
            experiment.plot(result, plot / f"{experiment.id}.png")
        if as_json:
            typer.echo(to_json(experiment.id, result))
        holds = holds and result.holds
    if not holds:
        raise typer.Exit(1)


def _chosen(ids: list[str], run_all: bool) -> list[Experiment]:
    from slicemill_lab.registry import UnknownExperimentError, experiment_ids, load

    if not ids and not run_all:
        _stop("name an experiment or say --all; `slicemill lab list` shows all ids")
    try:
        return [load(experiment_id) for experiment_id in (experiment_ids() if run_all else ids)]
    except UnknownExperimentError as error:
        _stop(str(error))


def _stop(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    raise typer.Exit(2)

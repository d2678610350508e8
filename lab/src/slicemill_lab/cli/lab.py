"""`slicemill lab list | run | report`: run published experiments and compare the figures."""

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

    # With --json the tables go to standard error, so that standard output contains JSON lines only.
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


@lab_app.command("report")
def report(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID...", help="Of these; else of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print it for a page.")] = False,
    run: Annotated[bool, typer.Option("--run", help="Run first, and keep the results.")] = False,
    scale: Annotated[Scale, typer.Option(help="Of --run.")] = Scale.full,
    seeds: Annotated[int, typer.Option(min=1, help="Of --run: from so many seeds at most.")] = 5,
) -> None:
    """Show published figures beside ours, with the spread over the seeds, as they were run last."""
    import json

    from rich.console import Console

    from slicemill_lab.progress import running
    from slicemill_lab.published import kept
    from slicemill_lab.published import report as table

    console = Console(stderr=as_json or as_markdown)
    names = _known(ids or [])
    if run:
        for experiment in _chosen([name for name in names if name in kept.PUBLISHED], run_all=False):
            with running(experiment.id, console):
                kept.keep(kept.run(experiment, scale=scale.value, most_seeds=seeds))
    rows = kept.rows(names)
    if as_json:
        typer.echo(
            json.dumps({"summary": table.summary(rows), "rows": table.plain(rows)}, ensure_ascii=False)
        )
    elif as_markdown:
        typer.echo(table.markdown(rows), nl=False)
    else:
        console.print(table.terminal(rows))


def _known(ids: list[str]) -> list[str]:
    """Validate the ids, or return all ids. Experiments are not imported here, because that is slow."""
    from slicemill_lab.registry import UnknownExperimentError, experiment_ids, module_of

    try:
        for name in ids:
            module_of(name)
    except UnknownExperimentError as error:
        _stop(str(error))
    return ids or experiment_ids()


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

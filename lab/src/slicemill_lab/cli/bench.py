"""`slicemill bench NAME…`: run benchmarks against other systems, and check claims."""

from __future__ import annotations

from typing import Annotated

import typer

from slicemill_lab.cli import Scale

bench_app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@bench_app.command(epilog="Example: slicemill bench simulator --json")
def bench(
    chosen: Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Such as simulator.")] = None,
    run_all: Annotated[bool, typer.Option("--all", help="Run every benchmark.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON line per benchmark.")] = False,
    scale: Annotated[Scale, typer.Option(help="small takes one to ten minutes.")] = Scale.small,
) -> None:
    """Measure; the exit status is 1 when a claim does not hold. Without a name, list the benchmarks."""
    from rich.console import Console
    from rich.table import Table

    from slicemill_lab.bench.benchmark import NAMES, load
    from slicemill_lab.experiment import to_json
    from slicemill_lab.progress import running
    from slicemill_lab.report import claims_table

    console = Console(stderr=as_json)
    if not chosen and not run_all:
        table = Table("name", "title", box=None)
        for name in NAMES:
            table.add_row(name, load(name).title)
        console.print(table)
        return
    holds = True
    for name in NAMES if run_all else chosen or []:
        benchmark = load(name)
        with running(name, console):
            result = benchmark.run(scale.value)
        for shown in benchmark.tables(result):
            console.print(shown)
        console.print(claims_table(f"{name}: {benchmark.title}", result))
        if as_json:
            typer.echo(to_json(name, result))
        holds = holds and result.holds
    if not holds:
        raise typer.Exit(1)

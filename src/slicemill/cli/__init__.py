"""Command line interface `slicemill`, with one module for each command.

Imports are inside the command functions, so that `slicemill check` starts without Spark, Numba and NumPy.

An error of the user is printed as a message with its position, never as a stack trace. `EXIT_STATUS`
documents the exit status.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup

from slicemill import __version__
from slicemill.cli import check, explain, home, lab, query, run, serve, simulate, sql, token
from slicemill.cli import home as log
from slicemill.cli import home as state
from slicemill.errors import SlicemillError
from slicemill.extension import commands, load

if TYPE_CHECKING:
    from typer._click.core import Command, Context

EXIT_STATUS = (
    "Exit status: 0 success; 1 an error in a script, an option, a home directory or a source, or a failed "
    "check; 2 wrong usage of the command; 3 a query failed while other queries continued; 130 interrupted "
    "(ctrl-c) and 143 terminated (SIGTERM), in both cases after `run` has shown its results."
)


class CommandsWithExtensions(TyperGroup):
    """Command group that includes the commands of extensions, and imports each when it is called."""

    def list_commands(self, ctx: Context) -> list[str]:
        return [*super().list_commands(ctx), *commands()]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        found = super().get_command(ctx, cmd_name)
        hook = commands().get(cmd_name) if found is None else None
        if hook is None:
            return found
        single = typer.Typer(add_completion=False)
        single.command(hook.name, epilog=hook.epilog)(load(hook.function))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=CommandsWithExtensions,
    help="Run many standing SQL queries over streams on Spark, planned together so that they share work.",
    epilog=EXIT_STATUS,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog="Example: slicemill check examples/auction.esl")(check.check)
app.command(
    epilog="Examples: slicemill explain examples/auction.esl --format svg --output auction.svg; "
    "slicemill explain examples/auction.esl --query hot_items --format dot | dot -Tpng -o hot_items.png"
)(explain.explain)
app.command(epilog=f"Example: slicemill run examples/auction.esl --for 30s\n\n{EXIT_STATUS}")(run.run)
app.command(epilog="Example: slicemill serve examples/auction.esl --home work")(serve.serve)
app.command(
    epilog="Examples: slicemill simulate examples/auction.esl --rate 500/s --policy fcfs --policy hnr; "
    "slicemill simulate FILE --rate bid=5000/s:bursty --rate 100/s --cores 8 --for 1h --save costs.json"
)(simulate.simulate)
app.command(epilog='Examples: slicemill sql; slicemill sql http://host:8080 -c "SHOW QUERIES"')(sql.sql)
app.add_typer(query.query_app, name="query")
app.add_typer(token.token_app, name="token")
app.command(epilog="Example: slicemill status --watch")(query.status)
app.command(epilog="Example: slicemill state work")(state.state)
app.add_typer(log.log_app, name="log")
app.add_typer(home.home_app, name="home")
app.command(**lab.FORWARDS)(lab.lab)
app.command(**lab.FORWARDS)(lab.bench)


def main() -> None:
    try:
        app()
    except SlicemillError as error:
        typer.echo(str(error), err=True)
        sys.exit(1)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slicemill {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del version

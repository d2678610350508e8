"""The command line: `slicemill check | explain | run | simulate | lab | bench`.

A user's mistake is printed as a message with its place, never as a stack trace; its exit status is 1. Wrong
usage of the command itself gives 2.
"""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from slicemill import __version__
from slicemill.bench.cli import bench
from slicemill.errors import SlicemillError
from slicemill.esl import Bound, EslError, Source, bind, bind_script
from slicemill.esl.catalog import Catalog
from slicemill.esl.summary import describe
from slicemill.esl.units import UNITS_US, unit_name
from slicemill.execution.runner import run_script
from slicemill.lab.cli import lab_app
from slicemill.plan.build import build_graph
from slicemill.plan.explain import explain_text
from slicemill.plan.explain_json import explain_json
from slicemill.plan.graph import QueryGraph
from slicemill.plan.model_explain import explain_model, explain_model_json, model_named, uses_of
from slicemill.plan.model_svg import model_svg
from slicemill.plan.optimize import optimize, share
from slicemill.plan.svg import explain_svg
from slicemill.scheduling.dispatch import POLICIES, policy_named
from slicemill.show import show_counts, show_rows, show_shed

app = typer.Typer(
    help="Many continuous queries over streams, planned together and run on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
log_app = typer.Typer(help="Look into the logs of a home.", no_args_is_help=True)
app.add_typer(lab_app, name="lab")
home_app = typer.Typer(help="Look after the home of a mill.", no_args_is_help=True)
app.add_typer(log_app, name="log")
app.add_typer(home_app, name="home")
app.command(epilog="Example: slicemill bench simulator --json")(bench)

File = Annotated[Path, typer.Argument(metavar="FILE", help="An ESL script; - reads standard input.")]


class Format(StrEnum):
    text = "text"
    json = "json"
    svg = "svg"


class EngineName(StrEnum):
    spark = "spark"
    reference = "reference"


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


@app.command(epilog="Example: slicemill check examples/auction.esl")
def check(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print statements and mistakes as JSON.")] = False,
) -> None:
    """List the statements of a script, or every mistake in it."""
    bound = bind_script(read(file))
    if as_json:
        typer.echo(json.dumps(_check_json(bound), indent=2))
    elif not bound.diagnostics:
        Console().print(_statements_table(bound))
    if bound.diagnostics:
        count = len(bound.diagnostics)
        if not as_json:
            typer.echo(f"{EslError(bound.source, bound.diagnostics)}\n", err=True)
            typer.echo(f"{count} mistake{'s' if count > 1 else ''} in {bound.source.name}", err=True)
        raise typer.Exit(1)


@app.command(epilog="Example: slicemill explain examples/auction.esl --format svg --output auction.svg")
def explain(
    file: File,
    form: Annotated[Format, typer.Option("--format", help="text, json, or svg: a drawing.")] = Format.text,
    query: Annotated[str | None, typer.Option(help="Only this query or derived stream.")] = None,
    uda: Annotated[str | None, typer.Option(help="How calls of this aggregate run, with their code.")] = None,
    model: Annotated[str | None, typer.Option(help="What this model keeps and costs, or its graph.")] = None,
    home: Annotated[
        Path | None, typer.Option(help="Count with what was measured in the home of a mill.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to a file.")] = None,
) -> None:
    """Show the query graph: what flows where, through which operators."""
    catalog = bind(read(file)).catalog
    if uda is not None:
        # Compilers take a second to import; a drawing should not wait for them.
        from slicemill.uda.explain import explain_uda

        typer.echo(explain_uda(uda, catalog))
        return
    if model is not None:
        _write(_explained_model(model, catalog, form), output)
        return
    graph = share(optimize(build_graph(catalog)), catalog)
    if home is not None:
        from slicemill.engine.state_view import with_measures

        graph = with_measures(graph, home)
    if query is not None:
        graph = _only(graph, query)
    if form is Format.svg:
        text = explain_svg(graph)
    elif form is Format.json:
        text = explain_json(graph)
    else:
        text = explain_text(graph, Console().width)
    _write(text, output)


def _explained_model(name: str, catalog: Catalog, form: Format) -> str:
    definition = model_named(name, catalog)
    if form is Format.svg:
        return model_svg(definition.name, definition.model, uses_of(name, catalog)[0])
    if form is Format.json:
        return explain_model_json(definition, catalog)
    return explain_model(definition, catalog)


def _write(text: str, output: Path | None) -> None:
    if output is None:
        typer.echo(text)
    else:
        output.write_text(text, encoding="utf-8")


@app.command(epilog="Example: slicemill run examples/auction.esl --for 30s")
def run(
    file: File,
    engine: Annotated[
        EngineName,
        typer.Option(help="reference runs tuple at a time, without Spark, to the end of the input."),
    ] = EngineName.spark,
    duration: Annotated[str | None, typer.Option("--for", metavar="30s", help="How long to run.")] = None,
    home: Annotated[Path | None, typer.Option(help="Keep logs and state here, and go on from them.")] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master; this machine if left out.")] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"Which query runs next: {', '.join(POLICIES)}; fcfs if nothing is set."
        ),
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write response times, slowdown and more as JSON.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="How many of each query's last rows to show.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print every row as a JSON line instead.")] = False,
) -> None:
    """Run every query of a script, and show what comes out."""
    source = read(file)
    catalog = bind(source).catalog
    if policy is not None:
        policy_named(policy)  # before Spark starts
    if engine is EngineName.reference:
        with Console(stderr=True).status("running"):
            result = run_script(catalog)
        show_rows([(q.name, q.schema, q.rows) for q in result.queries], rows, as_json)
        if not as_json:
            for stream in result.streams:
                show_counts(stream.name, stream.rows, stream.bad, stream.late)
            for query in result.queries:
                if query.shed is not None:
                    show_shed(query.name, query.shed.dropped, query.shed.accuracy)
        return
    # Spark takes seconds to import and start; checking a script should not.
    from slicemill.engine.console import run_on_spark

    run_on_spark(source, seconds_of(duration), home, master, policy, rows, as_json, metrics)


def seconds_of(duration: str | None) -> float | None:
    """A length of time as people write it, in seconds.

    >>> seconds_of("30s"), seconds_of("2 min"), seconds_of("1.5h")
    (30.0, 120.0, 5400.0)
    """
    if duration is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([a-z]+)\s*", duration.lower())
    unit = unit_name(match[2]) if match else None
    if match is None or unit not in UNITS_US:
        raise SlicemillError(f"{duration!r} is no length of time; write it as in --for 30s")
    return float(match[1]) * UNITS_US[unit] / 1_000_000


@app.command(
    epilog="Examples: slicemill simulate examples/auction.esl --rate 500/s --policy fcfs --policy hnr; "
    "slicemill simulate FILE --rate bid=5000/s:bursty --rate 100/s --cores 8 --for 1h --save costs.json"
)
def simulate(
    file: File,
    rate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STREAM=5000/s",
            help="Rows of a stream, as bid=200/min, bid=5000/s:poisson, bid=5000/s:bursty or bid=FILE.csv "
            "(lines of seconds,rows); without a name, of all other streams.",
        ),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Several are compared; fcfs if left out.")
    ] = None,
    cores: Annotated[int | None, typer.Option(min=1, help="Those of this machine if left out.")] = None,
    duration: Annotated[str, typer.Option("--for", metavar="10m", help="How long rows come.")] = "10m",
    every: Annotated[str, typer.Option(metavar="250ms", help="How often sources are read.")] = "250ms",
    home: Annotated[
        Path | None, typer.Option(help="Take costs from the home of a mill that has run.")
    ] = None,
    costs: Annotated[Path | None, typer.Option(help="Take costs from a file that --save wrote.")] = None,
    save: Annotated[Path | None, typer.Option(help="Keep the costs that are measured.")] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="30s", help="Also run for so long on Spark, under each policy.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Where the random numbers start.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead.")] = False,
) -> None:
    """Predict response times, slowdown, staleness and memory of every query, from measured costs.

    Without --home or --costs each unit of the script first runs alone on Spark, for a minute or so, over
    rows of the script's own sources.
    """
    from slicemill.simulate.plan import Wish
    from slicemill.simulate.plan import simulate as print_plan

    wish = Wish(
        rate or [],
        policy or ["fcfs"],
        cores,
        seconds_of(duration) or 0.0,
        seconds_of(every) or 0.0,
        seconds_of(validate),
        seed,
        home,
        costs,
        save,
    )
    print_plan(read(file), wish, as_json)


@app.command(epilog="Example: slicemill state work")
def state(home: Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")]) -> None:
    """Show what queries keep of their streams: rows, bytes and ages, by slice and by query."""
    from slicemill.engine.state_view import state_tables

    for table in state_tables(home):
        Console().print(table)


@log_app.command("ls", epilog="Example: slicemill log ls --home work")
def list_logs(home: Annotated[Path, typer.Option(help="The home of a mill.")]) -> None:
    """Show what the logs of a home hold: streams, derived streams and results."""
    from slicemill.engine.console import logs_table

    Console().print(logs_table(home))


HomeFolder = Annotated[Path, typer.Argument(metavar="HOME", help="The home of a mill.")]


@home_app.command("check", epilog="Example: slicemill home check work")
def check_home(home: HomeFolder) -> None:
    """Read everything that a home should hold, and name what is missing or damaged."""
    from slicemill.storage.check import check_home as checked

    with Console(stderr=True).status("checking") as status:
        report = checked(home, progress=status.update)
    typer.echo(f"{home}: FORMAT {report.format}, epoch {report.epoch}, {report.statements} statements")
    typer.echo(f"{report.logs} logs, {report.rows:,} rows, {report.bytes:,} bytes; {report.units} units")
    if report.torn:
        typer.echo(f"{report.torn} bytes of a commit that did not end; the next start cuts them off")
    for mistake in report.mistakes:
        typer.echo(mistake, err=True)
    if report.mistakes:
        raise typer.Exit(1)
    typer.echo("everything is there")


@home_app.command("backup", epilog="Example: slicemill home backup work /backup/work-monday")
def backup_home(
    home: HomeFolder,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A folder that does not exist yet.")],
) -> None:
    """Copy a home in which no mill runs, and check the copy."""
    from slicemill.storage.backup import backup_home as copied

    with Console(stderr=True).status("copying") as status:
        report = copied(home, target, status.update)
    typer.echo(f"{target}: epoch {report.epoch}, {report.rows:,} rows; everything is there")


@home_app.command("upgrade", epilog="Example: slicemill home upgrade work")
def upgrade_home(home: HomeFolder) -> None:
    """Bring a home that an older slicemill made to the format of this one."""
    from slicemill.storage.backup import upgrade_home as upgraded

    typer.echo(upgraded(home))


def read(file: Path) -> Source:
    """The script in a file, or a message that says why there is none."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except OSError as error:
        raise SlicemillError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SlicemillError(f"{file} is not UTF-8 text: byte {error.start} cannot be read") from None
    return Source(text, "<stdin>" if str(file) == "-" else str(file))


def _only(graph: QueryGraph, name: str) -> QueryGraph:
    by_name = {node.id.lower(): node.id for node in graph.sinks} | {
        stream.lower(): node_id for stream, node_id in graph.streams.items()
    }
    if name.lower() not in by_name:
        raise SlicemillError(f"there is no query or stream {name}; known are {', '.join(by_name)}")
    return graph.only(graph.ancestors(by_name[name.lower()]))


def _statements_table(bound: Bound) -> Table:
    table = Table("line", "kind", "name", "what", box=None, header_style="bold", pad_edge=False)
    for statement, span in bound.statements:
        line, _ = bound.source.position(span.start)
        kind, what = describe(statement)
        table.add_row(str(line), kind, statement.name, what)
    return table


def _check_json(bound: Bound) -> dict[str, object]:
    statements = []
    for statement, span in bound.statements:
        line, column = bound.source.position(span.start)
        kind, what = describe(statement)
        statements.append(
            {"line": line, "column": column, "kind": kind, "name": statement.name, "what": what}
        )
    mistakes = []
    for diagnostic in EslError(bound.source, bound.diagnostics).diagnostics:
        line, column = bound.source.position(diagnostic.span.start)
        mistakes.append(
            {"line": line, "column": column, "message": diagnostic.message, "hint": diagnostic.hint}
        )
    return {"file": bound.source.name, "statements": statements, "mistakes": mistakes}

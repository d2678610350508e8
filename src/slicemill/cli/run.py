"""`slicemill run`: run a script on Spark or on the reference engine."""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slicemill.cli.common import Conf, File, Packages, print_warnings, read, seconds_of, spark_settings
from slicemill.errors import SlicemillError
from slicemill.scheduling.policies import POLICIES, policy_named

if TYPE_CHECKING:
    from slicemill.catalog.catalog import Catalog
    from slicemill.sql.errors import SourceText


class EngineName(StrEnum):
    spark = "spark"
    reference = "reference"


class ExecutionName(StrEnum):
    workers = "workers"
    jobs = "jobs"


class DurabilityName(StrEnum):
    process = "process"
    machine = "machine"


def run(
    file: File,
    engine: Annotated[
        EngineName,
        typer.Option(help="reference runs tuple at a time, without Spark, to the end of the input."),
    ] = EngineName.spark,
    duration: Annotated[
        str | None, typer.Option("--for", metavar="30s", help="How long to run, from when sources are read.")
    ] = None,
    home: Annotated[Path | None, typer.Option(help="Keep logs and state here, and go on from them.")] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master; this machine if left out.")] = None,
    packages: Packages = None,
    conf: Conf = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help=f"Which query runs next: {', '.join(POLICIES)}; fcfs if nothing is set."
        ),
    ] = None,
    execution: Annotated[
        ExecutionName,
        typer.Option(help="workers stay and answer at once; jobs hold no slot of the cluster in between."),
    ] = ExecutionName.workers,
    durability: Annotated[
        DurabilityName,
        typer.Option(help="What committed results outlive: the end of the process, or a loss of power too."),
    ] = DurabilityName.process,
    subtasks: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many ways work of new queries is split.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write response times, slowdown and more as JSON.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="How many of each query's last rows to show.")] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print every row as a JSON line when it is made.")
    ] = False,
) -> None:
    """Run every query of a script, and show the results.

    With --json each row is printed as one line as soon as it is computed: {"query": …, "_ts": …} and the
    query's columns. All other messages go to standard error.
    """
    from slicemill.binder import bind

    source = read(file)
    if policy is not None:
        policy_named(policy)
    seconds = seconds_of(duration)
    settings = spark_settings(packages, conf)
    if metrics is not None:
        _check_writable(metrics)
    if engine is EngineName.reference:
        bound = bind(source)
        print_warnings(bound)
        _run_reference(bound.catalog, rows, as_json)
        return
    from slicemill.runtime.spark_session import begin_session, check_master

    # Report errors that can be found quickly before Spark starts.
    if master is not None:
        check_master(master)
    catalog = check_home(home, source)
    from slicemill.connectors.registry import check_declared

    check_declared(catalog)
    # The JVM starts while the engine is imported.
    spark = begin_session(master, settings)
    from slicemill.cli.live_table import RunOptions, run_on_spark

    options = RunOptions(
        seconds,
        home,
        policy,
        execution.value,
        durability.value,
        subtasks,
        rows,
        as_json,
        metrics,
    )
    status = run_on_spark(source, options, spark)
    if status:
        raise typer.Exit(status)


def check_home(home: Path | None, source: SourceText) -> Catalog:
    """Return the catalog of a script; raise errors of home and script."""
    import tempfile

    from slicemill.binder import bind
    from slicemill.lifecycle.catalog_journal import StoredStatements
    from slicemill.storage.home import HomeLock, check_format, read_format
    from slicemill.storage.home_reader import HomeReader

    if home is None:
        try:
            tempfile.gettempdir()
        except OSError as problem:
            raise SlicemillError(
                f"there is no place for a home: {problem.strerror}; give one with --home"
            ) from None
        return bind(source).catalog
    lock = HomeLock(home)
    lock.take()
    try:
        check_format(home)
        if read_format(home) is None:
            return bind(source).catalog
        found = HomeReader(home)
    finally:
        lock.release()
    kept = StoredStatements.of(found.statements, home, found.logs)
    return kept.reconcile(bind(source, kept=lambda: kept.catalog))[0]


def _check_writable(file: Path) -> None:
    if (
        file.is_dir()
        or not file.parent.is_dir()
        or not os.access(file if file.exists() else file.parent, os.W_OK)
    ):
        raise SlicemillError(f"{file} cannot be written; name a file in a folder that is there")


def _reference_engine() -> Callable[[Catalog], Any]:
    """Return the reference engine, which the distribution slicemill-oracle provides."""
    found = entry_points(group="slicemill.engines", name="reference")
    if not found:
        raise SlicemillError("the reference engine is not installed; run `pip install slicemill-oracle`")
    engine: Callable[[Catalog], Any] = next(iter(found)).load()
    return engine


def _run_reference(catalog: Catalog, rows: int, as_json: bool) -> None:
    from rich.console import Console

    from slicemill.columns.changelog import table_of_now
    from slicemill.columns.rows import timed_rows, to_table
    from slicemill.connectors.sinks.console import results_table, show_counts, show_shed
    from slicemill.connectors.sinks.folder import result_line

    run_script = _reference_engine()
    told = Console(stderr=True)
    with told.status("running"):
        result = run_script(catalog)
    if not as_json:
        told = Console()
    for query in result.queries:
        if as_json:
            for timed in query.rows:
                print(result_line(query.name, query.schema, timed), end="")
        else:
            schema, found = query.schema, query.rows
            if schema.changelog:
                found = timed_rows(
                    table_of_now(to_table(found, schema, [0] * len(found)), schema), schema.own
                )
            told.print(results_table(query.name, schema.own, found[-rows:] if rows else [], len(found)))
            told.print()
    for stream in result.streams:
        show_counts(told, stream.name, stream.read, 0, stream.late, stream.bad)
    for query in result.queries:
        if query.shed is not None:
            show_shed(told, query.name, query.shed.dropped, query.shed.accuracy)

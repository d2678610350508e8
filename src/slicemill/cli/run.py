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
        typer.Option(help="spark, or reference: row at a time, without Spark, until the input ends."),
    ] = EngineName.spark,
    duration: Annotated[
        str | None,
        typer.Option(
            "--for",
            metavar="30s",
            help="Duration of the run after sources are opened, for example 10m. Default: until ctrl-c.",
        ),
    ] = None,
    home: Annotated[
        Path | None,
        typer.Option(help="Home directory for queries, results and state; a later run continues from it."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark master, for example spark://host:7077. Default: this machine.")
    ] = None,
    packages: Packages = None,
    conf: Conf = None,
    policy: Annotated[
        str | None,
        typer.Option(metavar="NAME", help=f"Scheduling policy: {', '.join(POLICIES)}. Default: fcfs."),
    ] = None,
    execution: Annotated[
        ExecutionName,
        typer.Option(
            help="workers: long-running Spark tasks; jobs: Spark jobs, which free their cores when idle."
        ),
    ] = ExecutionName.workers,
    durability: Annotated[
        DurabilityName,
        typer.Option(
            help="process: commits survive a crash of the process; machine: also a loss of power (fsync)."
        ),
    ] = DurabilityName.process,
    subtasks: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Maximum number of subtasks (parallel instances) of a new task."
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write response times, slowdown and other metrics to this file as JSON."
        ),
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="Number of last rows to show of each query.")] = 5,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each result row as a JSON line as soon as it is committed.")
    ] = False,
) -> None:
    """Run all queries of a script, and show their results at the end.

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

    # Errors that can be found without Spark are reported before Spark starts.
    if master is not None:
        check_master(master)
    catalog = check_home(home, source)
    from slicemill.connectors.registry import check_declared

    check_declared(catalog)
    # The JVM starts in the background while Python imports the engine.
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
    """Return the catalog of a script, after a check against the home directory."""
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
                f"a temporary home directory cannot be created: {problem.strerror}; add --home FOLDER"
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
        raise SlicemillError(f"{file} cannot be written; use a file in an existing folder")


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

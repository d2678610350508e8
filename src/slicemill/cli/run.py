"""`slicemill run`: every query of a script, on Spark or on the reference engine."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slicemill.cli.common import File, read, seconds_of
from slicemill.scheduling.policies.policy_registry import POLICIES, policy_named

if TYPE_CHECKING:
    from slicemill.esl import SourceText
    from slicemill.esl.types.catalog import Catalog


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
    duration: Annotated[str | None, typer.Option("--for", metavar="30s", help="How long to run.")] = None,
    home: Annotated[Path | None, typer.Option(help="Keep logs and state here, and go on from them.")] = None,
    master: Annotated[str | None, typer.Option(help="A Spark master; this machine if left out.")] = None,
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
    cells: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="How many ways keyed work of new queries is split.")
    ] = None,
    metrics: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write response times, slowdown and more as JSON.")
    ] = None,
    rows: Annotated[int, typer.Option(min=0, help="How many of each query's last rows to show.")] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print every row as a JSON line instead.")] = False,
) -> None:
    """Run every query of a script, and show what comes out."""
    from slicemill.esl import bind

    source = read(file)
    if policy is not None:
        policy_named(policy)  # before Spark starts
    if engine is EngineName.reference:
        _run_reference(bind(source).catalog, rows, as_json)
        return
    seconds = seconds_of(duration)
    if home is None:
        bind(source)
    else:
        _check(home, source)
    from slicemill.engine.session import begin_session

    # The JVM starts while the engine is imported.
    spark = begin_session(master)
    from slicemill.engine.console import RunOptions, run_on_spark

    options = RunOptions(
        seconds,
        home,
        policy,
        execution.value,
        durability.value,
        cells,
        rows,
        as_json,
        metrics,
    )
    run_on_spark(source, options, spark)


def _check(home: Path, source: SourceText) -> None:
    """Say before Spark starts what is wrong with a script, with a home, or with the two together."""
    from slicemill.engine.changing.statements import KeptStatements
    from slicemill.esl import bind
    from slicemill.storage.home_format import check_format, read_format
    from slicemill.storage.home_lock import HomeLock
    from slicemill.storage.home_reader import HomeReader

    check_format(home)
    lock = HomeLock(home)
    lock.take()
    lock.release()
    if read_format(home) is None:
        bind(source)
        return
    found = HomeReader(home)
    kept = KeptStatements.of(found.statements, home, found.logs)
    kept.agreed(bind(source, kept=lambda: kept.catalog))


def _run_reference(catalog: Catalog, rows: int, as_json: bool) -> None:
    from rich.console import Console

    from slicemill.connectors.sinks.show import show_counts, show_rows, show_shed
    from slicemill.reference.runner import run_script

    with Console(stderr=True).status("running"):
        result = run_script(catalog)
    show_rows([(q.name, q.schema, q.rows) for q in result.queries], rows, as_json)
    if as_json:
        return
    for stream in result.streams:
        show_counts(stream.name, stream.rows, stream.bad, stream.late)
    for query in result.queries:
        if query.shed is not None:
            show_shed(query.name, query.shed.dropped, query.shed.accuracy)

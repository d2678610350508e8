"""Running scripts with a mill for the command line."""

from __future__ import annotations

import contextlib
import json
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from slicemill.connectors.sinks.show import show_counts, show_rows, show_timestamp
from slicemill.engine.live import RowRates, problems, queries_table, watch
from slicemill.engine.mill import Mill
from slicemill.engine.streams import SourceFailed
from slicemill.engine.warming import warm_up_script
from slicemill.engine.workers.sharing import Execution
from slicemill.esl import SourceText, bind
from slicemill.storage.home import Durability
from slicemill.storage.home_reader import HomeReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `slicemill run`: duration, session, home, and what to print at the end."""

    seconds: float | None = None
    home: Path | None = None
    policy: str | None = None
    execution: Execution = "workers"
    durability: Durability = "process"
    cells: int | None = None
    rows: int = 5
    as_json: bool = False
    metrics: Path | None = None


def run_on_spark(source: SourceText, options: RunOptions, spark: Future[SparkSession]) -> None:
    """Run a script for a time, or until interrupted; then print results and figures.

    Without a home the streams are ended, so that windows still open report too. With one they go on next
    time. While `spark` starts, code is compiled.
    """
    console = Console(stderr=True)
    threading.Thread(target=_warm_up, args=(source,), daemon=True).start()
    with _opened(options, spark, console) as mill:
        with console.status("planning"):
            mill.execute(source)
        if options.policy is not None:  # it goes before what the script sets
            mill.policy = options.policy
        mill.start()
        with contextlib.suppress(KeyboardInterrupt):
            watch(mill, options.seconds, console)
        unread: SourceFailed | None = None
        with console.status("finishing what has arrived"):
            if options.home is None:
                try:
                    mill.drain()
                except SourceFailed as problem:  # what does not read it is shown all the same
                    unread = problem
            else:
                mill.stop()
                mill.dispatcher.run_all()
        results = [(query.name, query.schema, query.rows()) for query in mill.queries.values()]
        show_rows(results, options.rows, options.as_json)
        if not options.as_json:
            _summary(mill)
        if options.metrics is not None:
            content = json.dumps(mill.metrics().plain(), indent=2) + "\n"
            options.metrics.write_text(content, encoding="utf-8")
        if unread is not None:
            raise unread


def _warm_up(source: SourceText) -> None:
    # What is wrong with a query is said when it is registered.
    with contextlib.suppress(Exception):
        warm_up_script(bind(source).catalog)


def _opened(options: RunOptions, spark: Future[SparkSession], console: Console) -> Mill:
    """The mill, which opens its home and then starts Spark; both take a while."""
    with console.status("opening the home") as status:
        return Mill(
            spark,
            options.home,
            execution=options.execution,
            durability=options.durability,
            cells=options.cells,
            progress=status.update,
        )


def _summary(mill: Mill) -> None:
    for name, stream in mill.streams.items():
        show_counts(name, stream.counts.rows, stream.counts.bad, stream.counts.late)
    console = Console()
    for problem in problems(mill):
        console.print(problem, style="red", highlight=False)
    console.print()
    console.print(queries_table(mill, RowRates(), 0.0))


def logs_table(folder: Path) -> Table:
    """A table of the logs of a home: rows, bytes, time range."""
    home = HomeReader(folder)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("log")
    for column in ("epochs", "rows", "bytes"):
        table.add_column(column, justify="right")
    table.add_column("from")
    table.add_column("to")
    for name, log in sorted(home.logs.items()):
        times = [ts for epoch in log.epochs() for ts in (epoch.min_ts, epoch.max_ts) if ts is not None]
        table.add_row(
            name,
            f"{len(log):,}",
            f"{log.rows:,}",
            f"{log.bytes:,}",
            show_timestamp(min(times)) if times else "",
            show_timestamp(max(times)) if times else "",
        )
    return table

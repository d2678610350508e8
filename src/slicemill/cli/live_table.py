"""Execution of `slicemill run`: run a script, watch its progress, and print the results."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table

from slicemill.api.mill import Mill
from slicemill.api.status import describe_failures, queries_table, watch
from slicemill.catalog.catalog import SourceSpec
from slicemill.columns.rows import timed_rows
from slicemill.connectors.sinks.console import results_table, show_counts, show_timestamp
from slicemill.connectors.sinks.folder import result_line
from slicemill.errors import SlicemillError
from slicemill.runtime.workers.sharing import Execution
from slicemill.sql.errors import SourceText
from slicemill.storage.home import Durability
from slicemill.storage.home_reader import HomeReader
from slicemill.types import Row, Schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_FAILED, INTERRUPTED, TERMINATED = 3, 128 + signal.SIGINT, 128 + signal.SIGTERM


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of `slicemill run`: duration, home directory, scheduling policy and output."""

    seconds: float | None = None
    home: Path | None = None
    policy: str | None = None
    execution: Execution = "workers"
    durability: Durability = "process"
    subtasks: int | None = None
    rows: int = 5
    as_json: bool = False
    metrics: Path | None = None


class Terminated(SystemExit):
    """Raised when the process has received SIGTERM."""


class ResultLines:
    """Printer of newly committed results as JSON lines.

    Epochs up to `after` are not printed.
    """

    def __init__(self, mill: Mill, after: int, out: TextIO) -> None:
        self._mill = mill
        self._after = after
        self._cursors: dict[str, int] = {}
        self._out = out

    def print_new(self) -> None:
        """Print all results that were committed since the last call."""
        for name, query in self._mill.queries.items():
            for epoch in query.log.epochs(after=self._cursors.get(name, self._after)):
                rows = timed_rows(query.log.read(epoch), query.schema)
                lines = "".join(result_line(name, query.schema, timed) for timed in rows)
                # An interrupt between writing and recording would repeat or lose lines.
                with _delay_signals():
                    self._out.write(lines)
                    self._cursors[name] = epoch.number
        self._out.flush()

    def print_answers(self) -> None:
        """Print the current results of the ad hoc queries in the script."""
        for name, schema, answer in _answers(self._mill):
            for row in answer:
                self._out.write(result_line(name, schema, (None, row)))
        self._out.flush()


def run_on_spark(source: SourceText, options: RunOptions, spark: Future[SparkSession]) -> int:
    """Run a script, print results and metrics, and return the exit status.

    The run ends after a time or when it is interrupted. Without a home directory, the streams are
    ended, so that open windows emit too. With a home directory, open windows continue in the next run.
    """
    console = Console(stderr=True)
    with _exit_on_sigterm(), _open_mill(options, spark, console) as mill:
        lines = ResultLines(mill, mill.home.epoch, sys.stdout) if options.as_json else None
        with console.status("planning"):
            mill.execute(source)
        if options.policy is not None:  # overrides the policy of the script
            mill.dispatcher.chooser.set_policy(options.policy)
        mill.start()
        status = 0
        try:
            watch(mill, options.seconds, console, None if lines is None else lines.print_new)
        except KeyboardInterrupt:
            status = INTERRUPTED
        except Terminated:
            status = TERMINATED
        problem = _finish(mill, options, console)
        if lines is not None:
            lines.print_new()
            lines.print_answers()
            _summary(mill, console)
        else:
            _show_results(mill, options.rows)
            _summary(mill, Console())
        if options.metrics is not None:
            content = json.dumps(mill.metrics(), indent=2) + "\n"
            options.metrics.write_text(content, encoding="utf-8")
        if problem is not None:
            raise problem
        # A query that was restarted after a failure has lost input.
        lives = [query.status() for query in mill.queries.values()]
        return QUERY_FAILED if any(life.why is not None for life in lives) else status


@contextlib.contextmanager
def _delay_signals() -> Iterator[None]:
    """Delay ctrl-c and SIGTERM until the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    before = {
        number: signal.signal(number, lambda *caught: held.append(caught))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for caught, frame in held:
            handler = before[signal.Signals(caught)]
            if callable(handler):
                handler(caught, frame)


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM end a run in the same way as ctrl-c."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        del frame
        raise Terminated(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _finish(mill: Mill, options: RunOptions, console: Console) -> SlicemillError | None:
    """Process all input that has arrived. Return the error, if any."""
    with console.status("processing the rows that have arrived; ctrl-c stops at once"):
        try:
            if options.home is None:
                mill.drain()
            else:
                mill.stop()
                mill.dispatcher.run_all()
        except SlicemillError as problem:
            return problem
    return None


def _open_mill(options: RunOptions, spark: Future[SparkSession], console: Console) -> Mill:
    """Open the home directory and start Spark, and show the progress on the console."""
    with console.status("opening the home directory") as status:
        return Mill(
            spark,
            options.home,
            execution=options.execution,
            durability=options.durability,
            subtasks=options.subtasks,
            progress=status.update,
        )


def _show_results(mill: Mill, count: int) -> None:
    """Print the last rows of each query.

    For a changelog, these are the last of its current rows. Ad hoc queries are evaluated now; their rows have
    no timestamp.
    """
    console = Console()
    for query in mill.queries.values():
        if query.schema.changelog:
            now = timed_rows(query.table(), query.schema.own)
            newest = now[-count:] if count else []
            console.print(results_table(query.name, query.schema.own, newest, len(now)))
        else:
            console.print(results_table(query.name, query.schema, query.newest(count), query.log.rows))
        console.print()
    for name, schema, answer in _answers(mill):
        shown = [(None, row) for row in answer[-count:]] if count else []
        console.print(results_table(name, schema, shown, len(answer)))
        console.print()


def _answers(mill: Mill) -> Iterator[tuple[str, Schema, Sequence[Row]]]:
    for query in mill.catalog.queries.values():
        if not query.continuous:
            yield query.name, query.schema, mill.tables.rows(query.name)


def _summary(mill: Mill, console: Console) -> None:
    for name, stream in mill.running.streams.items():
        counts = stream.counts
        if stream.error is not None:
            console.print(f"{name} could not be read: {stream.error}", style="red", highlight=False)
        if counts.read == 0 and stream.stream.source == SourceSpec():
            console.print(
                f"{name} has no SOURCE, so only a Python program can send rows to it", highlight=False
            )
        elif counts.read or stream.error is None:
            show_counts(console, name, counts.read, counts.unneeded, counts.late, counts.bad)
    for problem in (
        *([mill.dispatcher.problem] if mill.dispatcher.problem else []),
        *describe_failures(mill),
    ):
        console.print(problem, style="red", highlight=False)
    console.print()
    console.print(queries_table(mill))


def logs_table(folder: Path) -> Table:
    """Return a table of the logs in a home directory: rows, bytes and time range."""
    home = HomeReader(folder)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("log", overflow="fold")
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

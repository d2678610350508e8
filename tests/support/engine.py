"""Mills for tests: over workers in this process, or over those of a Spark session."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.catalog.queries import RelationQuery
from slicemill.columns.arrow_schema import is_system_column
from slicemill.columns.rows import to_table
from slicemill.runtime.workers.inline import InlinePool
from slicemill.testing import Clock, open_mill
from slicemill.types import Timed
from support.corpus import Event, Runnable, TimedRow, sent_row


def rows_as_table(mill: Mill, stream: str, rows: Sequence[tuple[object, ...]]) -> pa.Table:
    """Return rows in the types that the source of a declared stream sends."""
    schema = mill.running.streams[stream].stream.source_schema
    table = to_table([Timed(0, row) for row in rows], schema, [0] * len(rows))
    return table.drop_columns([name for name in table.column_names if is_system_column(name)])


def feed_rows(mill: Mill, stream: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Let rows in, in this order; nothing is run."""
    mill.feed(stream, rows_as_table(mill, stream, rows))
    mill.dispatcher.admit_handed()


def turn(mill: Mill) -> None:
    """What the dispatcher's loop does at one moment: notices, reads that are due, then all runs."""
    dispatcher = mill.dispatcher
    with dispatcher.paused():
        dispatcher._take(dispatcher._pool.wait(0))
        while dispatcher._send_reads():
            dispatcher._wait_for_answers()
    dispatcher.run_all()


def checkpoint_twice(mill: Mill) -> None:
    """Write the state of all tasks twice: both checkpoints of each then cover all that it has read."""
    for _ in range(2):
        for task in mill.dispatcher.tasks.values():
            task._rows_since_checkpoint = 1
        mill.dispatcher.checkpoint_all()


def watermarks(mill: Mill) -> dict[str, int]:
    """Return the watermarks that decide which tasks can run."""
    return {log: mill.dispatcher.watermark(log) for log in mill.dispatcher.running.logs_to_check()}


def finish(mill: Mill) -> None:
    """End all streams and run until every result is there."""
    mill.dispatcher.end_streams()
    mill.dispatcher.run_all()


def admit(mill: Mill, stream: str, events: Sequence[Event]) -> None:
    """Let tuples of a case in; they arrive now."""
    declared = mill.running.streams[stream].stream
    rows = [sent_row(declared, e.row) for e in events if e.row is not None and e.ts_us is not None]
    if rows:
        feed_rows(mill, stream, rows)
    for event in events:
        if event.row is None and event.ts_us is not None:
            mill.running.streams[stream].announce_at_least(stream, event.ts_us)


def run_case(
    runnable: Runnable,
    open_mill: Callable[[Clock, int], Mill],
    seed: int,
    *,
    runs: float = 0.1,
    restarts: float = 0.05,
    disturb: Callable[[random.Random], None] = lambda _: None,
) -> dict[str, list[TimedRow]]:
    """A case's results, with tasks run between any two tuples, and mills that stop, crash and start again.

    `disturb` is called now and then, to do harm that must not be seen in the results.
    """
    chooser = random.Random(seed)
    clock = Clock()
    tables, changes = dict(runnable.tables), list(runnable.changes)

    def started(*, given: bool) -> Mill:
        mill = open_mill(clock, chooser.choice([1, 2, 5]))
        for name, rows in tables.items() if given else ():
            mill.tables.set_rows(name, rows)
        mill.execute(runnable.case.esl)
        mill.open()
        return mill

    def change_tables() -> None:
        while changes and changes[0].at_us <= clock.now:
            change = changes.pop(0)
            tables[change.table] = change.rows
            mill.tables.set_rows(change.table, change.rows)

    mill = started(given=True)
    try:
        moments = groupby(runnable.events, key=lambda event: (event.arrival_us, event.stream))
        for (clock.now, stream), events in moments:
            change_tables()
            if stream in mill.running.streams:
                admit(mill, stream, list(events))
            if chooser.random() < runs:
                mill.dispatcher.run_some()
            if chooser.random() < restarts:
                # Without a checkpoint it is a crash: what was in memory only is replayed.
                mill.close(checkpoint=chooser.random() < 0.5)
                # A home knows what a program has given before.
                mill = started(given=chooser.random() < 0.5)
            disturb(chooser)
        finish(mill)
        return results_of(mill)
    finally:
        mill.close()


def results_of(mill: Mill) -> dict[str, list[TimedRow]]:
    results: dict[str, list[TimedRow]] = {}
    for name, query in mill.catalog.queries.items():
        if isinstance(query.query, RelationQuery):
            results[name] = [(None, row) for row in mill.tables.rows(name)]
        else:
            assert mill.queries[query.name].error is None, mill.queries[query.name].error
            results[name] = [(timed.ts, timed.row) for timed in mill.queries[query.name].timed_rows()]
    return results


def fed_mill(home: Path, clock: Callable[[], int], pool: InlinePool, subtasks: int = 1) -> Mill:
    """A mill over workers in this process, whose streams get what a test feeds them."""
    return open_mill(home=home, pool=pool, clock=clock, subtasks=subtasks, read_sources=False)

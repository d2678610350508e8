"""Follower: reads committed query results from a home directory, in another process.

    for epoch, rows in follow(Path("work"), "hot_items"):
        print(rows.num_rows)

The home directory contains the logs and the journal of a running engine. A follower does not communicate with
the engine. It reads the journal, and maps the files (segments) that journal records name. Every millisecond
it checks the size of the journal, which takes a few microseconds, and reads the journal only if it has grown.
So a row is visible about half a millisecond after its commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from slicemill.columns.arrow_schema import as_results
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.journal import JOURNAL, RECORDS
from slicemill.storage.segments import ExtentFreed

EVERY_S = 0.001
_TICK_NS = 1_000_000_000


class CommittedRows(NamedTuple):
    """Result rows of one commit: `_ts` (UTC), then the columns of the query.

    If `gap` is set, earlier rows have been freed. The rows of a changelog are then its current table.
    """

    query: str
    epoch: int
    rows: pa.Table
    gap: bool = False


class Follower:
    """Follower of some queries in a home directory.

    The home directory and the queries may be created later.
    """

    def __init__(self, home: Path, queries: Sequence[str], after: int = -1) -> None:
        self._home = home
        self._cursors = dict.fromkeys(queries, after)
        self._reader: HomeReader | None = None
        self._read_mark: tuple[int, int] | None = None
        self._newest: Path | None = None
        self._changed_ns = 0

    def poll(self) -> list[CommittedRows]:
        """Return the rows committed since the last call, by query and commit (epoch)."""
        mark = self._journal_mark()
        if mark is None or mark == self._read_mark:
            return []
        # The mark is set before reading, so that the next call reads records that are written meanwhile.
        self._read_mark = mark
        if self._reader is None:
            self._reader = HomeReader(self._home)
        self._reader.poll()
        return [seen for query in self._cursors for seen in self._new_rows(self._reader, query)]

    def _journal_mark(self) -> tuple[int, int] | None:
        """Return a value that changes whenever the journal changes.

        It consists of the modification time of the journal folder and the size of the newest file.
        """
        journal = self._home / JOURNAL
        try:
            changed_ns = journal.stat().st_mtime_ns
            # File system clocks are coarse, so another file may have been created within the same clock tick.
            if changed_ns != self._changed_ns or time.time_ns() - changed_ns < _TICK_NS:
                self._newest = max((p for p in journal.iterdir() if p.suffix == RECORDS), default=None)
                self._changed_ns = changed_ns
            return None if self._newest is None else (changed_ns, self._newest.stat().st_size)
        except FileNotFoundError:
            return None

    def _new_rows(self, reader: HomeReader, query: str) -> Iterator[CommittedRows]:
        log = reader.logs.get(query)
        if log is None:
            return
        gap = log.has_freed_after(self._cursors[query])
        for epoch in log.epochs(self._cursors[query]):
            try:
                rows = as_results(log.read(epoch))
            except ExtentFreed:
                reader.poll()
                if reader.logs.get(query) is log and log.freed < epoch.number:
                    self._cursors[query], gap = epoch.number, True
                    continue  # the rows of the epoch are lost
                # The epoch was freed meanwhile, because this follower lags behind the retention of the log.
                yield from self._new_rows(reader, query)
                return
            self._cursors[query] = epoch.number
            yield CommittedRows(query, epoch.number, rows, gap)
            gap = False


def follow(
    home: Path,
    query: str,
    after: int = -1,
    *,
    stopped: Callable[[], bool] = lambda: False,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the results of a query by epoch, until `stopped` returns True.

    The first result is the first epoch (commit) after `after`. A later call can continue after the last
    yielded epoch.
    """
    follower = Follower(home, [query], after)
    while True:
        # The end is checked before polling, so that commits before the end are still yielded.
        ends = stopped()
        for seen in follower.poll():
            yield seen.epoch, seen.rows
        if ends:
            return
        wait(EVERY_S)

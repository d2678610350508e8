"""The follower: reads results of a home as they are committed, from another process.

    for epoch, rows in follow(Path("work"), "hot_items"):
        print(rows.num_rows)

No mill takes part: a follower reads the journal, and maps the segments that its records name. It looks at the
size of the journal every millisecond, which takes a few microseconds, and reads it only when that has grown.
So a row is seen about half a millisecond after its commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from slicemill.storage.arrow_schema import as_results
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.journal import JOURNAL, RECORDS
from slicemill.storage.segments import ExtentGone

EVERY_S = 0.001
_TICK_NS = 1_000_000_000


class CommittedRows(NamedTuple):
    """Rows that one commit added to a query's results: `_ts` (a timestamp in UTC), then its columns.

    With a `gap`, some before them are not retained any more; those of a changelog begin anew with its table.
    """

    query: str
    epoch: int
    rows: pa.Table
    gap: bool = False


class Follower:
    """Follows the results of some queries of a home. The home, and its queries, may come later."""

    def __init__(self, home: Path, queries: Sequence[str], after: int = -1) -> None:
        self._home = home
        self._cursors = dict.fromkeys(queries, after)
        self._reader: HomeReader | None = None
        self._looked: tuple[int, int] | None = None
        self._newest: Path | None = None
        self._changed_ns = 0

    def poll(self) -> list[CommittedRows]:
        """What was committed since the last call: query by query, in the order of epochs."""
        looked = self._look()
        if looked is None or looked == self._looked:
            return []
        # Before reading: what is written while we read is seen by the next call.
        self._looked = looked
        if self._reader is None:
            self._reader = HomeReader(self._home)
        self._reader.poll()
        return [seen for query in self._cursors for seen in self._new_rows(self._reader, query)]

    def _look(self) -> tuple[int, int] | None:
        """Changes whenever the journal does: when it got a new file, and how long the newest one is."""
        journal = self._home / JOURNAL
        try:
            changed_ns = journal.stat().st_mtime_ns
            # The clock of a file system is coarse: another file may have come in the same tick.
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
        gap = log.missed(self._cursors[query])
        for epoch in log.epochs(self._cursors[query]):
            try:
                rows = as_results(log.read(epoch))
            except ExtentGone:
                reader.poll()
                if reader.logs.get(query) is log and log.freed < epoch.number:
                    self._cursors[query], gap = epoch.number, True
                    continue  # it is lost
                # Freed while we looked: we are further behind than the home keeps.
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
    """The results of a query, an epoch at a time, from those after epoch `after` on, until `stopped` says so.

    Give the last epoch that was seen to go on where another call has ended.
    """
    follower = Follower(home, [query], after)
    while True:
        # Asked before looking: what was committed before the end is still seen.
        ends = stopped()
        for seen in follower.poll():
            yield seen.epoch, seen.rows
        if ends:
            return
        wait(EVERY_S)

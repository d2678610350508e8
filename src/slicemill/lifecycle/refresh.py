"""REFRESH EVERY of CREATE TABLE: read the sources of tables again periodically.

If a source cannot be read, its table keeps its rows. Retries have a back-off of 1 s, 2 s, 4 s, …, at most
the refresh interval.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from slicemill.catalog.catalog import Table
from slicemill.errors import SlicemillError
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.time import SECOND_US

_LOGGER = logging.getLogger("slicemill")
_FIRST_RETRY_US = SECOND_US
_LOOKS_S = 0.2


@dataclass(slots=True)
class DueTable:
    """Time of the next refresh of a table, and the failures since the last successful refresh."""

    table: Table
    due_us: int
    failures: int = 0
    error: str | None = None


class TableRefresher:
    """Thread that reads the source of each table again when its REFRESH EVERY interval has passed."""

    def __init__(self, refresh: Callable[[str], None], running: RunningCatalog) -> None:
        self._refresh = refresh
        self._running = running
        self._clock = running.clock
        self._due: dict[str, DueTable] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def look(self) -> None:
        """Read the sources of all tables whose refresh interval has passed.

        A new table is not due at once, because it was read when it was declared.
        """
        now = self._clock()
        tables = [one for one in self._running.catalog.relations.values() if isinstance(one, Table)]
        known, self._due = self._due, {}
        for table in tables:
            if table.refresh_us is not None:
                before = known.get(table.name)
                same = before is not None and before.table == table
                self._due[table.name] = before if same and before else DueTable(table, now + table.refresh_us)
        for due in list(self._due.values()):
            if due.due_us <= now:
                self._read(due)

    def problems(self) -> list[str]:
        """Return a line of text for each table whose source cannot be read."""
        return [
            f"table {due.table.name} keeps its rows, as its source cannot be read: {due.error}; "
            "reading is retried"
            for due in self._due.values()
            if due.error is not None
        ]

    def _read(self, due: DueTable) -> None:
        assert due.table.refresh_us is not None, "only those are due"
        try:
            self._refresh(due.table.name)
        except SlicemillError as problem:
            if due.error is None:
                _LOGGER.warning("table %s keeps its rows: %s", due.table.name, problem)
            wait = min(_FIRST_RETRY_US << min(due.failures, 30), due.table.refresh_us)
            due.failures, due.error = due.failures + 1, str(problem)
            due.due_us = self._clock() + wait
        else:
            due.failures, due.error = 0, None
            due.due_us = self._clock() + due.table.refresh_us

    def start(self) -> None:
        if self._thread is None:
            self._ended.clear()
            self._thread = threading.Thread(target=self._run, name="refreshing", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(_LOOKS_S):
            self.look()

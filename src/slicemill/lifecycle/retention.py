"""Retention: delete the log epochs that all readers have consumed, and compact changelogs.

An epoch is the rows that one commit appended to a log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from slicemill.catalog.catalog import HELD, Catalog
from slicemill.lifecycle.compaction import Compactor
from slicemill.lifecycle.relations import first_epochs_in_use
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.plan.statement_equality import views_to_answer
from slicemill.runtime.retained_logs import log_retention_us
from slicemill.storage.changes import Change
from slicemill.storage.filesystem import StorageFull
from slicemill.storage.garbage import epochs_to_free
from slicemill.storage.home_state import BEFORE
from slicemill.types import Schema

BETWEEN_COLLECTIONS_S = 2.0


class RetentionCollector:
    """Deletes consumed rows from the logs (stored streams and results) of a home directory.

    Results stay readable for `keep_us` after all readers have consumed them. `readers` returns the positions
    in logs of the readers that are not tasks, such as sinks and alerts.
    """

    def __init__(
        self, running: RunningCatalog, keep_us: int, readers: Callable[[], Iterable[Mapping[str, int]]]
    ) -> None:
        self.keep_us = keep_us
        self.compactor = Compactor(running.home.durable)
        self._running = running
        self._readers = readers
        self._collected_s = time.monotonic()

    def collect_when_due(self) -> bool:
        """Delete consumed rows, but at most every two seconds; return True if the deletion was due."""
        due = time.monotonic() - self._collected_s >= BETWEEN_COLLECTIONS_S
        if due:
            # If the disk is full, the next call deletes the files that this call did not delete.
            with suppress(StorageFull):
                self.collect()
        return due

    def collect(self) -> None:
        """Delete consumed epochs and compact changelogs, in one journal record."""
        self._collected_s = time.monotonic()
        if not self._running.opened:
            return  # the positions of the readers are not known before the tasks run
        home, catalog, dispatcher = self._running.home, self._running.catalog, self._running.dispatcher
        running = dispatcher.tasks
        needed = [*(task.needed_from for task in running.values()), *self._readers()]
        # A stored task that is not declared now may run again, and then needs all changes of its changelogs.
        away = [
            fields[checkpoint]["cursors"]
            for task, fields in home.tasks.items()
            for checkpoint in ("checkpoint", BEFORE)
            if task not in running and checkpoint in fields
        ]
        needed += [
            {log: at for log, at in cursors.items() if log in home.logs and home.logs[log].changes}
            for cursors in away
        ]
        # The logs of held-back stream rows and of the windows of views have their own retention.
        views = {view.name: view for view in views_to_answer(catalog)}
        others = {name + HELD for name in dispatcher.streams} | views.keys()
        logs = [log for name, log in home.logs.items() if name not in others]
        freed = epochs_to_free(logs, needed, log_retention_us(catalog, self.keep_us), self._running.clock())
        changing = changelogs_of(catalog)
        based = self.compactor.look(home.logs, changing, freed)
        freed = {name: first for name, first in freed.items() if not home.logs[name].changes}
        watermarks = {name: dispatcher.watermark(name) for name in views if name in home.logs}
        freed |= first_epochs_in_use(views.values(), home, watermarks)
        home.commit(Change(freed=freed, based=based))
        home.free(dispatcher.writers)


def changelogs_of(catalog: Catalog) -> Mapping[str, Schema]:
    """Map the name of each changelog to its schema."""
    known = (*catalog.queries.values(), *catalog.relations.values())
    return {one.name: one.schema for one in known if one.schema.changelog}

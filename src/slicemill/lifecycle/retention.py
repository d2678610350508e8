"""Retention: delete the log epochs that all readers have consumed, and compact changelogs.

An epoch is what one commit appended to a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from slicemill.catalog.catalog import HELD, Catalog
from slicemill.lifecycle.compaction import Compactor
from slicemill.lifecycle.views import first_epochs_in_use
from slicemill.plan.statement_equality import views_to_answer
from slicemill.runtime.driver import Dispatcher
from slicemill.runtime.retained_logs import log_retention_us
from slicemill.storage.changes import Change
from slicemill.storage.garbage import epochs_to_free
from slicemill.storage.home import Home
from slicemill.storage.home_state import BEFORE
from slicemill.types import Schema


class RetentionCollector:
    """Retention of all logs of a home directory.

    Results stay readable for `keep_us` after all readers have consumed them.
    """

    def __init__(
        self,
        home: Home,
        dispatcher: Dispatcher,
        keep_us: int,
        clock: Callable[[], int],
        watermark: Callable[[str], int],
    ) -> None:
        self.keep_us = keep_us
        self.compactor = Compactor(home.durable)
        self._home = home
        self._dispatcher = dispatcher
        self._clock = clock
        self._watermark = watermark

    def collect(self, catalog: Catalog, streams: Iterable[str], readers: Iterable[Mapping[str, int]]) -> None:
        """Free epochs that no reader needs, and compact changelogs, in one journal record.

        `readers` are the cursors of readers other than tasks, by log.
        """
        home = self._home
        running = self._dispatcher.tasks
        needed = [*(task.needed_from for task in running.values()), *readers]
        # A stored task whose query is not declared now needs all changes once the query is declared again.
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
        # Held-back rows of streams and the windows of views have their own retention.
        views = {view.name: view for view in views_to_answer(catalog)}
        others = {name + HELD for name in streams} | views.keys()
        logs = [log for name, log in home.logs.items() if name not in others]
        freed = epochs_to_free(logs, needed, log_retention_us(catalog, self.keep_us), self._clock())
        changing = changelogs_of(catalog)
        based = self.compactor.look(home.logs, changing, freed)
        freed = {name: first for name, first in freed.items() if not home.logs[name].changes}
        freed |= first_epochs_in_use(views.values(), home, self._watermark)
        home.commit(Change(freed=freed, based=based))
        home.free(self._dispatcher.writers)


def changelogs_of(catalog: Catalog) -> Mapping[str, Schema]:
    """Return the schema of each changelog, by the name of its log."""
    known = (*catalog.queries.values(), *catalog.relations.values())
    return {one.name: one.schema for one in known if one.schema.changelog}

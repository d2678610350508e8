"""Compaction: replace the oldest changes of a changelog by a table of the rows that result from them.

    log of `popular`   … 3   5   8 │ 9   12          first epoch that a reader may still need: 9
                       folded here │ kept            by cursors and `keep_s`, as for any log

A background thread writes the table to its own segment. Then one journal record replaces the changes by
the table (`Change.based`). A crash before the record leaves an unreferenced segment, and the changes stay
in force. A crash after the record leaves unreferenced segments of changes, and the table is in force.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import pyarrow as pa

from slicemill.columns.arrow_schema import ARRIVAL, SEQ, TS, as_results, with_system_columns
from slicemill.columns.changelog import DELETE, INSERT, table_of_now, with_ops
from slicemill.columns.merge import time_range
from slicemill.storage.changes import Appended
from slicemill.storage.filesystem import unique_name
from slicemill.storage.log import Epoch, Log
from slicemill.storage.segments import Extent, SegmentWriter
from slicemill.types import OP, OPS, Schema

# Minimum number of changes that a compaction replaces by a table.
_LEAST_ROWS = 10_000

_LOGGER = logging.getLogger("slicemill")


@dataclass(frozen=True, slots=True)
class FoldedLog:
    """Table that replaces a log's changes up to epoch `upto` after a compaction."""

    log: Log
    upto: int
    base: Appended


class Compactor:
    """Compaction of changelogs, one log at a time.

    A log is compacted once its changes outnumber the rows of its base, the table that its oldest changes were
    folded into. So each change is rewritten about twice at most, and a log has at most as many unneeded
    changes as rows. `least_rows` is the minimum number of changes to fold.
    """

    def __init__(self, durable: bool, least_rows: int = _LEAST_ROWS) -> None:
        self.least_rows = least_rows
        self._durable = durable
        self._thread: threading.Thread | None = None
        self._folded: FoldedLog | None = None

    def wait(self) -> None:
        """Wait until the running compaction has written its table."""
        if self._thread is not None:
            self._thread.join()

    def look(
        self, logs: Mapping[str, Log], changing: Mapping[str, Schema], freed: Mapping[str, int]
    ) -> dict[str, tuple[int, Appended]]:
        """Return the table of the compaction that has finished, if any, and start the next compaction.

        `freed` maps each log to its first epoch that is still needed. The result is the field `based` of a
        `Change`.
        """
        if self._thread is not None and self._thread.is_alive():
            return {}
        done, self._folded, self._thread = self._folded, None, None
        based = {}
        # The compacted log may have been dropped meanwhile, or may have a new reader of its old changes.
        if (
            done is not None
            and logs.get(done.log.name) is done.log
            and freed.get(done.log.name, 0) > done.upto
        ):
            based[done.log.name] = (done.upto, done.base)
        for name, first in freed.items():
            log = logs[name]
            if name not in changing or name in based or first <= log.begun_after:
                continue
            epochs = [epoch for epoch in log.all_epochs() if epoch.number < first]
            if self._is_worthwhile(log, epochs):
                self._begin(log, changing[name], epochs)
                break
        return based

    def _is_worthwhile(self, log: Log, epochs: Sequence[Epoch]) -> bool:
        base = epochs[0].rows if epochs and epochs[0].number == log.base else 0
        return sum(epoch.rows for epoch in epochs) - base >= max(self.least_rows, base)

    def _begin(self, log: Log, schema: Schema, epochs: Sequence[Epoch]) -> None:
        def fold() -> None:
            try:
                self._folded = fold_epochs(log, schema, epochs, self._durable)
            except Exception:  # the changes are still stored, so a later compaction can retry
                _LOGGER.exception(
                    "the changelog %s could not be compacted; its changes stay, and compaction is retried",
                    log.name,
                )

        self._thread = threading.Thread(target=fold, name=f"slicemill-fold-{log.name}", daemon=True)
        self._thread.start()


def fold_epochs(log: Log, schema: Schema, epochs: Sequence[Epoch], durable: bool = False) -> FoldedLog:
    """Write a table of the rows that result from the changes in some epochs of a changelog."""
    rows = _current_table(log, schema, epochs)
    table = with_ops(rows, np.full(rows.num_rows, INSERT)).cast(with_system_columns(log.columns))
    extents = _write_extents(log, "base", table, durable) if table.num_rows else []
    # The folded table gets the arrival time of the newest change that it replaces.
    arrival_us = max(epoch.arrival_us for epoch in epochs)
    return FoldedLog(log, epochs[-1].number, Appended(extents, *time_range(table), arrival_us))


def deletes_of_all(log: Log, schema: Schema, now_us: int, durable: bool = False) -> Appended | None:
    """Write a delete for each current row of a changelog; return None if it has no current rows.

    The deletes have the greatest timestamp of the changelog.
    """
    rows = _current_table(log, schema, log.all_epochs())
    if not rows.num_rows:
        return None
    count, at_us = rows.num_rows, log.end.max_ts
    for name, values in ((TS, [at_us] * count), (SEQ, range(count)), (ARRIVAL, [now_us] * count)):
        index = rows.schema.get_field_index(name)
        rows = rows.set_column(
            index, rows.schema.field(index), pa.array(values, rows.schema.field(index).type)
        )
    table = with_ops(rows, np.full(count, DELETE)).cast(with_system_columns(log.columns))
    return Appended(_write_extents(log, "deletes", table, durable), at_us, at_us, now_us)


def _current_table(log: Log, schema: Schema, epochs: Sequence[Epoch]) -> pa.Table:
    """Return the rows that result from the changes in some epochs of a changelog.

    The changes of replaced definitions cancel out and are skipped.
    """
    empty = with_system_columns(log.columns).empty_table()
    found = [log.read(epoch) for epoch in epochs if epoch.number > log.begun_after]
    return table_of_now(pa.concat_tables([empty, *found]), schema)


def _write_extents(log: Log, what: str, table: pa.Table, durable: bool) -> list[Extent]:
    writer = SegmentWriter(log.folder, f"{what}.{unique_name()}")
    extent = writer.append(table, compress=True)
    if durable:
        writer.sync()
    writer.release()
    return [extent]


# Cache of the tables that result from changelogs.


_CACHED_BYTES = 256 << 20


@dataclass(slots=True)
class ChangelogTables:
    """LRU cache of the tables that result from changelogs, updated with each new change."""

    most_bytes: int = _CACHED_BYTES
    _lock: Lock = field(default_factory=Lock)
    _known: OrderedDict[str, tuple[int, pa.Table]] = field(default_factory=OrderedDict)

    def now(self, log: Log, schema: Schema) -> pa.Table:
        """Return the current rows of a changelog: the rows that result from all its changes.

        `schema` is the current schema. If the changelog is paused, return the rows and schema at the pause.
        """
        key, schema = str(log.folder), log.schema_shown(schema)
        with self._lock:
            head, now = self._known.get(key, (-1, None))
            if log.has_freed_after(head) or head < log.shown_begun_after:
                head, now = -1, None
            epochs, found = log.read_after(head)
            if now is None or epochs:
                changes = as_results(
                    pa.concat_tables([with_system_columns(log.columns_shown).empty_table(), *found])
                )
                now = table_of_now(changes if now is None else _append_changes(now, changes), schema)
                self._keep(key, epochs[-1].number if epochs else head, now)
            self._known.move_to_end(key)
        return now

    def _keep(self, key: str, head: int, table: pa.Table) -> None:
        self._known[key] = (head, table)
        while len(self._known) > 1 and sum(kept.nbytes for _, kept in self._known.values()) > self.most_bytes:
            self._known.popitem(last=False)


def _append_changes(now: pa.Table, changes: pa.Table) -> pa.Table:
    """Return one table with the current rows as inserts, followed by newer changes of the changelog."""
    index = changes.schema.get_field_index(OP)
    inserts = pa.repeat(pa.scalar(OPS[0]), now.num_rows)
    return pa.concat_tables([now.add_column(index, changes.schema.field(index), inserts), changes])

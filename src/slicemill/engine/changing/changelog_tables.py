"""Cache of the current tables of changelogs."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock

import pyarrow as pa

from slicemill.columns.changes import table_of_now
from slicemill.esl.types.schema import OP, OPS, Schema
from slicemill.storage.arrow_schema import as_results, with_system_columns
from slicemill.storage.log import Log

_CACHED_BYTES = 256 << 20


@dataclass(slots=True)
class ChangelogTables:
    """Current tables of changelogs, updated incrementally; the least recently used are evicted."""

    most_bytes: int = _CACHED_BYTES
    _lock: Lock = field(default_factory=Lock)
    _known: OrderedDict[str, tuple[int, pa.Table]] = field(default_factory=OrderedDict)

    def now(self, log: Log, schema: Schema) -> pa.Table:
        """Return the current table of a changelog; each change is read once.

        `schema` is the current schema. For a paused log the table and schema at the pause are returned.
        """
        key, schema = str(log.folder), log.schema_shown(schema)
        with self._lock:
            head, now = self._known.get(key, (-1, None))
            if log.missed(head) or head < log.shown_begun_after:
                head, now = -1, None
            epochs, found = log.read_after(head)
            if now is None or epochs:
                changes = as_results(
                    pa.concat_tables([with_system_columns(log.columns_shown).empty_table(), *found])
                )
                now = table_of_now(changes if now is None else _after(now, changes), schema)
                self._keep(key, epochs[-1].number if epochs else head, now)
            self._known.move_to_end(key)
        return now

    def _keep(self, key: str, head: int, table: pa.Table) -> None:
        self._known[key] = (head, table)
        while len(self._known) > 1 and sum(kept.nbytes for _, kept in self._known.values()) > self.most_bytes:
            self._known.popitem(last=False)


def _after(now: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the current rows as inserts, followed by changes."""
    place = changes.schema.get_field_index(OP)
    inserts = pa.repeat(pa.scalar(OPS[0]), now.num_rows)
    return pa.concat_tables([now.add_column(place, changes.schema.field(place), inserts), changes])

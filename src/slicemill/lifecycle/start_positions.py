"""Start positions: determine where new queries start to read their streams.

A stream's BEGIN determines where its queries start, and the FROM of a query overrides it. A query emits the
same rows whether it is created with its streams or later. Three cases are distinguished:

    no row was read yet                   the query starts with its streams
    the rows are stored in the log        the query reads the log, as with RETAIN
    retention has deleted the rows        the source of the stream is read a second time

Derived streams whose rows were deleted are computed again. Some sources can be read only once: sockets,
generators, and rows of a program or of Spark. Queries of such a stream start with the rows that arrive from
now on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from slicemill.catalog.catalog import (
    AGAIN,
    ERRORS,
    LATE,
    Catalog,
    DerivedStream,
    QueryDefinition,
    Stream,
    View,
    relations_of,
)
from slicemill.catalog.queries import Continuous, RelationQuery
from slicemill.functions.render import timestamp_text
from slicemill.ingest.intake import NEXT_ARRIVAL
from slicemill.ingest.watermarks import newest_tuple
from slicemill.lifecycle.task_fields import LEFT_OUT, new_fields, newest_ts
from slicemill.plan.backfill_tasks import BackfillPlan, backfill_task_id
from slicemill.runtime.pipeline import TaskPlan
from slicemill.runtime.retained_logs import WHOLE
from slicemill.runtime.streams import MOVED
from slicemill.runtime.tasks import BACKFILL
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.time import BEGINNING, END

_LOGGER = logging.getLogger("slicemill")


def starts_apart(
    catalog: Catalog,
    home: Home | HomeReader,
    can_be_read: Callable[[Stream], bool],
    replaced: Collection[str] = (),
    again: Collection[str] = (),
) -> dict[str, BackfillPlan]:
    """Return the queries and derived streams that read past rows, and therefore need a task of their own.

    `can_be_read` returns True for streams whose source a worker can read a second time. The backfill of a
    query in `replaced` ends, because its definition is new. Queries in `again` start another backfill.
    """
    written = {
        log for fields in home.tasks.values() for log in (*fields["outputs"], *fields.get(LEFT_OUT, ()))
    }
    written.difference_update(again)
    found: dict[str, BackfillPlan] = {}
    for task, fields in home.tasks.items():
        backfill = fields.get(BACKFILL)
        if backfill is None or backfill["query"] in again:
            continue
        if "done" in backfill or backfill["query"] not in replaced:
            name = backfill["query"]
            found[name] = BackfillPlan(
                joins=backfill.get("joins", False),
                again=frozenset(backfill.get("again", ())),
                renamed=task == backfill_task_id(name),
            )
    declared = {query.name for query in catalog.queries.values()}
    declared |= {one.name for one in catalog.relations.values() if isinstance(one, DerivedStream)}
    found = {name: apart for name, apart in found.items() if name in declared}
    starts = _StartSearch(catalog, home, can_be_read, written)
    for statement in (*catalog.relations.values(), *catalog.queries.values()):
        if not isinstance(statement, (QueryDefinition, DerivedStream)) or statement.name in found:
            continue
        if statement.name in written or isinstance(statement.query, RelationQuery):
            continue
        apart = starts.of(statement)
        if apart is not None:
            found[statement.name] = apart
    return found


def was_read(stream: str, home: Home | HomeReader) -> bool:
    """Return True if rows were read from the source of a stream before."""
    fields: Mapping[str, Any] = home.streams.get(stream, {})
    return bool(fields.get("offsets")) or MOVED in fields


@dataclass(slots=True)
class _StartSearch:
    """Search for the past rows that a new query or derived stream needs.

    `written` are the logs that tasks have written so far.
    """

    catalog: Catalog
    home: Home | HomeReader
    can_be_read: Callable[[Stream], bool]
    written: Collection[str]

    def of(self, statement: QueryDefinition | DerivedStream) -> BackfillPlan | None:
        """Return the backfill of a new query or derived stream, or None if it reads only new rows."""
        begins_us = statement.begins_us if isinstance(statement, QueryDefinition) else None
        if begins_us == END:
            return None
        past = _PastRows(begins_us is not None)
        self._add(statement.query, past, direct=True)
        if begins_us is None and not past.again and not past.kept:
            return None
        return BackfillPlan(
            again=frozenset(past.again),
            kept=frozenset(past.kept),
            begins_us=None if begins_us in (None, BEGINNING) else begins_us,
            explicit=begins_us is not None,
            renamed=bool(past.again),
        )

    def _add(self, query: Continuous | RelationQuery, past: _PastRows, *, direct: bool) -> bool:
        """Add the inputs whose past rows a query reads to `past`; return True if there is any."""
        found = False
        for name in relations_of(query):
            relation = self.catalog.relation(name)
            if isinstance(relation, View):
                found |= self._add(relation.query, past, direct=direct)
            elif isinstance(relation, Stream):
                found |= self._add_stream(relation, past)
            elif isinstance(relation, DerivedStream):
                found |= self._add_derived(relation, past)
        return found

    def _add_stream(self, relation: Stream, past: _PastRows) -> bool:
        owner = self.catalog.declared_stream(relation.name)
        if not past.explicit and not owner.starts_early:
            return False
        if past.explicit and owner.retain_us is not None:
            # A query with LATE also reads the late rows of the stream, which RETAIN stores too.
            past.kept |= {relation.name, owner.name + LATE}
        elif not was_read(owner.name, self.home):
            return False
        elif self._is_whole(relation.name, owner.name):
            past.kept.add(relation.name)
        elif self.can_be_read(owner) and MOVED not in self.home.streams[owner.name]:
            past.again.add(owner.name)
        elif owner.retain_us is not None:
            past.kept.add(relation.name)
        else:
            return False
        return True

    def _add_derived(self, relation: DerivedStream, past: _PastRows) -> bool:
        if relation.name not in self.written:
            return False  # a derived stream that starts together with the query has no past rows
        if relation.schema.changelog:
            return False  # a new query reads all changes of a changelog anyway
        if self._is_complete(relation.name) and (past.explicit or self._starts_early(relation)):
            past.kept.add(relation.name)
            return True
        if past.explicit and relation.retain_us is not None:
            past.kept.add(relation.name)
            return True
        if not self._add(relation.query, past, direct=False):
            return False
        past.again.add(relation.name)
        return True

    def _starts_early(self, relation: DerivedStream | View) -> bool:
        """Return True if a derived stream or view reads a stream whose queries start with its first row.

        Streams that are read through other derived streams or views count too.
        """
        for name in relations_of(relation.query):
            found = self.catalog.relation(name)
            if isinstance(found, Stream) and self.catalog.declared_stream(found.name).starts_early:
                return True
            if isinstance(found, (DerivedStream, View)) and self._starts_early(found):
                return True
        return False

    def _is_whole(self, log: str, owner: str) -> bool:
        """Return True if the log of a stream still stores all rows since its first row, with all columns."""
        epoch, newest = self.home.streams[owner].get(WHOLE, (None, None))
        if epoch is None or log not in self.home.logs or self.home.logs[log].freed >= 0:
            return False
        if log.endswith((LATE, ERRORS)) and log != owner:
            return False
        return newest is None

    def _is_complete(self, log: str) -> bool:
        """Return True if the log of a derived stream still stores all rows since its first row."""
        if log not in self.home.logs or self.home.logs[log].freed >= 0:
            return False
        return any(
            fields["since"].get(log, 0) is None
            for fields in self.home.tasks.values()
            if log in fields["outputs"]
        )


@dataclass(slots=True)
class _PastRows:
    explicit: bool
    again: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)


def backfill_fields(
    plan: TaskPlan,
    home: Home,
    query: str,
    apart: BackfillPlan,
    catalog: Catalog,
    given_us: int | None = None,
) -> dict[str, Any]:
    """Return the journal fields of a new backfill task.

    The task computes the query, or computes a derived stream again for the query. Results up to `given_us`
    were emitted by an earlier definition, and are not emitted again.
    """
    begins_us = BEGINNING if apart.begins_us is None else apart.begins_us
    fields = new_fields(plan, home)
    cursors: dict[str, int] = dict(fields["cursors"])
    reach: dict[str, int | None] = {}
    for log in plan.task.inputs:
        if AGAIN in log:
            continue  # the log of a source that is read again is read from its first row
        if log in apart.kept:
            first, reach[log] = retention_gap(log, home, catalog)
            before = home.logs[log].last_before(begins_us) if begins_us > BEGINNING else -1
            cursors[log] = max(first, before)
        else:
            reach[log] = newest_ts([log], home)
    if apart.explicit:
        _warn(query, begins_us, reach)
    known = [ts for ts in reach.values() if ts is not None]
    since = max([*known, *([begins_us - 1] if begins_us > BEGINNING else [])], default=None)
    fields |= {
        "cursors": cursors,
        "since": {log: since for _, log in plan.task.outputs},
        "checkpoint": {"cursors": cursors, "input_watermarks": {}, "files": []},
    }
    if all(log != query for _, log in plan.task.outputs):
        return fields
    read_again = sorted(name for name in apart.again if name in home.streams)
    fields[BACKFILL] = {
        "query": query,
        "from": begins_us if begins_us > BEGINNING else None,
        "goal": {log: home.logs[log].head for log in plan.task.inputs},
        "rows": sum(home.logs[log].rows_after(cursors[log]) for log in apart.kept & cursors.keys()),
    }
    if apart.again:
        fields[BACKFILL] |= {
            "again": sorted(apart.again),
            "arrivals": {name: home.streams[name].get(NEXT_ARRIVAL, 0) for name in read_again},
            "newest": {name: newest_tuple(home.streams[name]) for name in read_again},
        }
    if apart.alone:
        fields[BACKFILL]["alone"] = True
    if given_us is not None:
        fields[BACKFILL]["after"] = given_us
    return fields


def retention_gap(log: str, home: Home, catalog: Catalog) -> tuple[int, int | None]:
    """Return the last epoch of a log with deleted or unstored rows, and the greatest timestamp of these rows.

    The log has all rows after that timestamp. The timestamp is None if the log has all rows.
    """
    opened, relation = home.logs[log], catalog.relation(log)
    if opened.changes:
        return -1, None  # compaction replaces the old changes of a changelog by a table, so no row is missing
    first, reach = opened.first - 1, None
    if isinstance(relation, Stream):
        owner = catalog.declared_stream(log).name
        epoch, newest = home.streams.get(owner, {}).get(WHOLE, (opened.head, None))
        first, reach = max(first, epoch), newest if log == owner else None
        missing = opened.freed >= 0 or (log != owner and epoch >= 0)
    else:
        written = [fields["since"][log] for fields in home.tasks.values() if log in fields.get("since", {})]
        reach = written[0] if written else None
        missing = opened.freed >= 0
    if missing:
        # The deleted rows may have had the same timestamp as the first stored row.
        left = [epoch.min_ts for epoch in opened.epochs(after=first)[:1] if epoch.min_ts is not None]
        known = left[0] if left else opened.max_ts
        reach = max((ts for ts in (reach, known) if ts is not None), default=None)
    return first, reach


def _warn(query: str, begins_us: int, reach: Mapping[str, int | None]) -> None:
    for log, ts in reach.items():
        if ts is not None and ts >= begins_us:
            _LOGGER.warning(
                "%s reaches back to %s: %s begins there, and is complete when its windows are",
                log,
                timestamp_text(ts),
                query,
            )

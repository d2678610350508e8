"""SHOW, DESCRIBE and SHOW CREATE: the catalog as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from slicemill.adhoc.relations import unknown_name
from slicemill.api.mill import Mill
from slicemill.catalog.catalog import DerivedStream, QueryDefinition, Statement, Stream, Table, View
from slicemill.catalog.extended import CalledDefinition, ComputedStream
from slicemill.catalog.statements import ShownKind
from slicemill.connectors.webhook import url_origin
from slicemill.explain.statements import describe
from slicemill.extension import called_kinds, statements
from slicemill.lifecycle.alerts import AlertStatus
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.lifecycle.query import Query
from slicemill.metrics.query_metrics import QueryMetrics
from slicemill.secrets import redact
from slicemill.types import Schema

_INSTANT = pa.timestamp("us", tz="UTC")
_TEXT, _COUNT = pa.string(), pa.int64()
_VERSIONED = ("query", "relation", "aggregate", "function")


def listing(mill: Mill, what: ShownKind | str) -> pa.Table:
    """Return the rows of a SHOW statement."""
    if what is ShownKind.QUERIES:
        return _queries(mill)
    if what is ShownKind.STREAMS:
        return _streams(mill)
    if what is ShownKind.STATEMENTS:
        return _statements(mill)
    if what is ShownKind.ALERTS:
        return alerts_table(mill.alerts.status())
    if what is ShownKind.SETTINGS:
        rows = [("policy", mill.dispatcher.chooser.policy.name), *mill.catalog.settings.items()]
        return _table({"name": _TEXT, "value": _TEXT}, dict(rows).items())
    described = [(one.name, describe(one)[1]) for one in _statements_of_kind(mill, what)]
    return _table({"name": _TEXT, "description": _TEXT}, sorted(described))


def _statements_of_kind(mill: Mill, what: ShownKind | str) -> Iterable[Statement]:
    catalog = mill.catalog
    if what is ShownKind.FUNCTIONS:
        return catalog.functions.values()
    if what is ShownKind.AGGREGATES:
        versions = (*catalog.base_aggregates.items(), *catalog.window_aggregates.items())
        return [one for name, one in versions if name not in catalog.callables]
    if isinstance(what, ShownKind):
        kind = {ShownKind.TABLES: Table, ShownKind.VIEWS: View}[what]
        return [one for one in catalog.relations.values() if isinstance(one, kind)]
    declared = (*catalog.relations.values(), *catalog.callables.values())
    extended = [one for one in declared if isinstance(one, (ComputedStream, CalledDefinition))]
    return [one for one in extended if statements()[one.kind].plural == what]


def state_of(mill: Mill, query: QueryDefinition) -> str:
    """Return the state of a query: running, backfilling, paused, failed, restarting, or ad hoc."""
    return mill.lifecycle.of(query.name).state.value if query.continuous else "ad hoc"


def _queries(mill: Mill) -> pa.Table:
    rows = []
    for query in sorted(mill.catalog.queries.values(), key=lambda one: one.name):
        handle = mill.queries.get(query.name)
        metrics = handle.measured() if handle is not None else None
        life = handle.status() if handle is not None else None
        rows.append(
            (
                query.name,
                state_of(mill, query),
                metrics.rows if metrics is not None else None,
                handle.lag_rows() if handle is not None else None,
                _response_ms(metrics, 0.5),
                _response_ms(metrics, 0.99),
                _progress(mill, handle),
                life.why if life is not None else None,
                life.failures if life is not None else None,
                life.next_try_us if life is not None else None,
                handle.version if handle is not None else None,
            )
        )
    columns = {
        "name": _TEXT,
        "state": _TEXT,
        "rows": _COUNT,
        "rows_waiting": _COUNT,
        "p50_ms": pa.float64(),
        "p99_ms": pa.float64(),
        "progress": _TEXT,
        "error": _TEXT,
        "failures": _COUNT,
        "next_try": _INSTANT,
        "version": _COUNT,
    }
    return _table(columns, rows)


def _response_ms(metrics: QueryMetrics | None, quantile: float) -> float | None:
    """Return a quantile of the response time in milliseconds, rounded for display."""
    found = metrics.response_ms(quantile) if metrics is not None else None
    return None if found is None else round(found, 1)


def _progress(mill: Mill, handle: Query | None) -> str | None:
    found = mill.backfills.progress_of(handle.name) if handle is not None else None
    return None if found is None else found.describe()


def _streams(mill: Mill) -> pa.Table:
    rows: list[tuple[object, ...]] = []
    for relation in sorted(mill.catalog.relations.values(), key=lambda one: one.name):
        if not isinstance(relation, (Stream, DerivedStream)):
            continue
        running = mill.running.streams.get(relation.name)
        counts = running.counts if running is not None else None
        figures = (counts.read, counts.late, counts.bad) if counts is not None else (None, None, None)
        error = (running.error or running.warning) if running is not None else None
        life = mill.lifecycle.of(relation.name)
        rows.append((relation.name, describe(relation)[1], *figures, error or life.why, life.state.value))
    columns = {
        "name": _TEXT,
        "description": _TEXT,
        "rows_read": _COUNT,
        "late": _COUNT,
        "unreadable": _COUNT,
        "error": _TEXT,
        "state": _TEXT,
    }
    return _table(columns, rows)


def alerts_table(alerts: Iterable[AlertStatus]) -> pa.Table:
    """Return the rows of SHOW ALERTS.

    Of a webhook's address only the host is shown, because the rest often contains a secret.
    """
    rows = [
        (
            one.name,
            one.on,
            one.condition or None,
            one.state,
            one.since_us,
            ", ".join(one.firing) or None,
            one.sent,
            one.sent_us,
            one.waiting,
            url_origin(one.url),
            one.error,
        )
        for one in sorted(alerts, key=lambda one: one.name)
    ]
    columns = {
        "name": _TEXT,
        "on": _TEXT,
        "condition": _TEXT,
        "state": _TEXT,
        "since": _INSTANT,
        "firing": _TEXT,
        "sent": _COUNT,
        "last_sent": _INSTANT,
        "waiting": _COUNT,
        "webhook": _TEXT,
        "error": _TEXT,
    }
    return _table(columns, rows)


def _statements(mill: Mill) -> pa.Table:
    rows = [
        (entry["at"], entry.get("by", ""), entry.get("kind", "drop"), entry["name"], redact(entry["text"]))
        for entry in mill.home.statements
    ]
    columns = {"at": _INSTANT, "by": _TEXT, "kind": _TEXT, "name": _TEXT, "text": _TEXT}
    return _table(columns, rows)


def versions(mill: Mill, name: str) -> pa.Table:
    """Return the rows of SHOW VERSIONS: all definitions of a name."""
    kinds = (*_VERSIONED, *(kind.lower() for kind in sorted(called_kinds() - {"AGGREGATE"})))
    found = [(mill.statements.versions(kind, name), kind) for kind in kinds]
    rows = [
        (kind, one.number, one.at_us, one.by, one.epoch, one.because, one.text)
        for versions, kind in found
        for one in versions
    ]
    if not rows:
        raise unknown_name(mill.catalog, name)
    columns = {"kind": _TEXT, "version": _COUNT, "at": _INSTANT, "by": _TEXT, "from_epoch": _COUNT}
    return _table({**columns, "because": _TEXT, "text": _TEXT}, rows)


def statement_of(mill: Mill, name: str, kind: str | None = None) -> str:
    """Return the statement that declared a name. Objects of different kinds may share a name."""
    kinds: dict[str, tuple[str, ...]] = {
        "QUERY": ("query",),
        "FUNCTION": ("function",),
        "AGGREGATE": ("aggregate", "window aggregate"),
        "ALERT": ("alert",),
    }
    kinds |= {called: (called.lower(),) for called in called_kinds() - {"AGGREGATE"}}
    wanted = None if kind is None else kinds.get(kind, ("relation",))
    texts: list[str] = [
        redact(entry["text"])
        for (declared, named), entry in in_force(mill.home.statements).items()
        if named == name.lower() and (wanted is None or declared in wanted)
    ]
    if not texts:
        raise unknown_name(mill.catalog, name)
    return texts[0]


def columns_of(mill: Mill, name: str) -> pa.Table:
    """Return the rows of DESCRIBE: the columns of a stream, query, table or view."""
    rows = [(column.name, str(column.type)) for column in schema_of(mill, name)]
    return _table({"column": _TEXT, "type": _TEXT}, rows)


def schema_of(mill: Mill, name: str) -> Schema:
    """Return the schema of a stream, query, table or view."""
    found = mill.catalog.queries.get(name.lower()) or mill.catalog.relation(name)
    if found is None:
        raise unknown_name(mill.catalog, name)
    return found.schema


def _table(columns: dict[str, pa.DataType], rows: Iterable[Sequence[Any]]) -> pa.Table:
    found = list(rows)
    arrays = [pa.array([row[index] for row in found], kind) for index, kind in enumerate(columns.values())]
    return pa.table(arrays, names=list(columns))

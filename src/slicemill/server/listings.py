"""SHOW, DESCRIBE and SHOW CREATE: the catalog as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from slicemill.engine.mill import Mill
from slicemill.errors import SlicemillError, did_you_mean
from slicemill.esl.types.catalog import DerivedStream, QueryDefinition, Statement, Stream, Table, View
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.command import ShownKind
from slicemill.esl.types.schema import Schema
from slicemill.explain.statements import describe

_INSTANT = pa.timestamp("us", tz="UTC")
_TEXT, _COUNT = pa.string(), pa.int64()


def listing(mill: Mill, what: ShownKind) -> pa.Table:
    """The rows of SHOW."""
    if what is ShownKind.QUERIES:
        return _queries(mill)
    if what is ShownKind.STREAMS:
        return _streams(mill)
    if what is ShownKind.STATEMENTS:
        return _statements(mill)
    if what is ShownKind.SETTINGS:
        rows = [("policy", mill.policy), *mill.catalog.settings.items()]
        return _table({"name": _TEXT, "value": _TEXT}, dict(rows).items())
    described = [(one.name, describe(one)[1]) for one in _declared(mill, what)]
    return _table({"name": _TEXT, "description": _TEXT}, sorted(described))


def _declared(mill: Mill, what: ShownKind) -> Iterable[Statement]:
    catalog = mill.catalog
    if what is ShownKind.MODELS:
        return catalog.models.values()
    if what is ShownKind.FUNCTIONS:
        return catalog.functions.values()
    if what is ShownKind.AGGREGATES:
        models = catalog.models.keys()
        versions = (*catalog.base_aggregates.items(), *catalog.window_aggregates.items())
        return [one for name, one in versions if name not in models]
    kinds = {ShownKind.TABLES: Table, ShownKind.VIEWS: View, ShownKind.CLASSIFIERS: Classifier}
    return [one for one in catalog.relations.values() if isinstance(one, kinds[what])]


def state_of(mill: Mill, query: QueryDefinition) -> str:
    """What becomes of a query: it is running, failed, or answered when it is asked."""
    if not query.continuous:
        return "ad hoc"
    return "failed" if mill.queries[query.name].error else "running"


def _queries(mill: Mill) -> pa.Table:
    rows = []
    for query in sorted(mill.catalog.queries.values(), key=lambda one: one.name):
        handle = mill.queries.get(query.name)
        metrics = handle.metrics() if handle is not None else None
        rows.append(
            (
                query.name,
                state_of(mill, query),
                metrics.rows if metrics is not None else None,
                mill.lag_rows(query.name) if handle is not None else None,
                metrics.response_ms(0.5) if metrics is not None else None,
                metrics.response_ms(0.99) if metrics is not None else None,
                handle.error if handle is not None else None,
            )
        )
    columns = {
        "name": _TEXT,
        "state": _TEXT,
        "rows": _COUNT,
        "rows_waiting": _COUNT,
        "p50_ms": pa.float64(),
        "p99_ms": pa.float64(),
        "error": _TEXT,
    }
    return _table(columns, rows)


def _streams(mill: Mill) -> pa.Table:
    rows: list[tuple[object, ...]] = []
    for relation in sorted(mill.catalog.relations.values(), key=lambda one: one.name):
        if not isinstance(relation, (Stream, DerivedStream)):
            continue
        running = mill.streams.get(relation.name)
        counts = running.counts if running is not None else None
        figures = (counts.read, counts.late, counts.bad) if counts is not None else (None, None, None)
        error = running.error if running is not None else None
        rows.append((relation.name, describe(relation)[1], *figures, error))
    columns = {
        "name": _TEXT,
        "description": _TEXT,
        "rows_read": _COUNT,
        "late": _COUNT,
        "unreadable": _COUNT,
        "error": _TEXT,
    }
    return _table(columns, rows)


def _statements(mill: Mill) -> pa.Table:
    rows = [
        (entry["at"], entry.get("by", ""), entry.get("kind", "drop"), entry["name"], entry["text"])
        for entry in mill.home.statements
    ]
    columns = {"at": _INSTANT, "by": _TEXT, "kind": _TEXT, "name": _TEXT, "text": _TEXT}
    return _table(columns, rows)


def statement_of(mill: Mill, name: str) -> str:
    """The text that declared a name."""
    for entry in reversed(mill.home.statements):
        if entry["name"].lower() == name.lower():
            if "dropped" in entry:
                break
            text: str = entry["text"]
            return text
    raise unknown(mill, name)


def columns_of(mill: Mill, name: str) -> pa.Table:
    """The rows of DESCRIBE: the columns of a stream, query, table or view."""
    rows = [(column.name, str(column.type)) for column in schema_of(mill, name)]
    return _table({"column": _TEXT, "type": _TEXT}, rows)


def schema_of(mill: Mill, name: str) -> Schema:
    """The columns of what has rows."""
    found = mill.catalog.queries.get(name.lower()) or mill.catalog.relation(name)
    if found is None:
        raise unknown(mill, name)
    return found.schema


def unknown(mill: Mill, name: str) -> SlicemillError:
    """The error of a name that nothing has."""
    catalog = mill.catalog
    known = [one.name for one in (*catalog.queries.values(), *catalog.relations.values())]
    hint = did_you_mean(name, known) or "SHOW QUERIES and SHOW STREAMS list what is there"
    return SlicemillError(f"there is no stream, query, table or view {name}; {hint}")


def _table(columns: dict[str, pa.DataType], rows: Iterable[Sequence[Any]]) -> pa.Table:
    found = list(rows)
    arrays = [pa.array([row[place] for row in found], kind) for place, kind in enumerate(columns.values())]
    return pa.table(arrays, names=list(columns))

"""Bind start positions: BEGIN of a stream and FROM of a query.

FROM is an error if past rows are not available.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from slicemill.errors import all_of
from slicemill.esl.binder.scalar import parse_timestamp
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import span_of
from slicemill.esl.types.catalog import (
    Catalog,
    DerivedStream,
    Relation,
    Stream,
    Table,
    TimestampKind,
    View,
    relations_of,
)
from slicemill.esl.types.query import Continuous
from slicemill.esl.types.relation import RelationQuery
from slicemill.time import BEGINNING, END


def beginning_us(
    node: exp.Expression | None, query: Continuous | RelationQuery | None, catalog: Catalog
) -> int | None:
    """Return the start time of a query by its FROM clause.

    FROM NOW is END. None means that there is no FROM clause: the query starts where its streams say.
    """
    if node is None:
        return None
    if isinstance(query, RelationQuery):
        raise Mistake(
            "an ad hoc query reads what tables hold now", span_of(node), "leave FROM out, or read a stream"
        )
    if node.name == "NOW" and isinstance(node, exp.Var):
        return END
    begins = BEGINNING
    if isinstance(node, exp.Literal):
        found = parse_timestamp(node.name)
        if found is None:
            raise Mistake(
                f"'{node.name}' is no timestamp",
                span_of(node),
                "write it as in '2026-01-31 12:00:00', in UTC",
            )
        begins = found
        changing = sorted({one.name for one in _logs_read(query, catalog) if _changes(one)})
        if changing:
            raise Mistake(
                f"rows of {all_of(changing)} change: a query over them begins with the table as it is",
                span_of(node),
                "leave FROM TIMESTAMP out",
            )
    read = [one for one in _logs_read(query, catalog) if not _changes(one)]
    forgotten = sorted({one.name for one in read if not _can_be_read_again(one, catalog)})
    if forgotten:
        is_told = "is" if len(forgotten) == 1 else "are"
        declared = all_of(_declared(forgotten, catalog))
        raise Mistake(
            f"{all_of(forgotten)} {is_told} not retained, so there is no past to begin in",
            span_of(node),
            f"declare {declared} with RETAIN, as in RETAIN 7 DAYS; or leave FROM out",
        )
    return begins


def stream_begin_us(node: exp.Expression | None, kind: TimestampKind) -> int | None:
    """Return the start position of a stream by its BEGIN clause.

    The result is BEGINNING, END (LATEST), a time, or None without the clause.
    """
    if node is None:
        return None
    if isinstance(node, exp.Var):
        return BEGINNING if node.name == "EARLIEST" else END
    found = parse_timestamp(node.name)
    if found is None:
        raise Mistake(
            f"'{node.name}' is no timestamp",
            span_of(node),
            "write BEGIN EARLIEST, BEGIN LATEST, or BEGIN TIMESTAMP '2026-01-31 12:00:00', in UTC",
        )
    if kind is not TimestampKind.EXTERNAL:
        raise Mistake(
            "BEGIN with a time is for timestamps that come with the tuples",
            span_of(node),
            "write BEGIN EARLIEST or BEGIN LATEST, or add ORDER BY with a timestamp column",
        )
    return found


def _can_be_read_again(relation: Relation, catalog: Catalog) -> bool:
    """Return True if past rows are retained or can be recomputed.

    Rows can be recomputed if the source can be read again.
    """
    if isinstance(relation, (Stream, DerivedStream)) and relation.retain_us is not None:
        return True
    if isinstance(relation, Stream):
        return catalog.declared_stream(relation.name).has_past
    if isinstance(relation, DerivedStream):
        return all(
            _changes(one) or _can_be_read_again(one, catalog) for one in _logs_read(relation.query, catalog)
        )
    return False


def _declared(names: list[str], catalog: Catalog) -> list[str]:
    """Return the streams whose RETAIN applies to these logs.

    Late and bad rows are retained as long as the rows of their stream.
    """
    owners = {name: catalog.owner_of(name) for name in names}
    return sorted({name if (owner := owners[name]) is None else owner.name for name in names})


def _changes(relation: Relation) -> bool:
    return isinstance(relation, DerivedStream) and relation.schema.changelog


def _logs_read(query: Continuous | RelationQuery | None, catalog: Catalog) -> Iterator[Relation]:
    """Yield the streams that a query reads, also through views."""
    for name in relations_of(query) if query is not None else ():
        relation = catalog.relation(name)
        if isinstance(relation, View):
            yield from _logs_read(relation.query, catalog)
        elif relation is not None and not isinstance(relation, Table):
            yield relation

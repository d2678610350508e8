"""Changes of a table's rows, bound and typed: INSERT, UPDATE, DELETE, TRUNCATE.

Each change creates the next version of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.catalog.catalog import relations_of
from slicemill.catalog.expressions import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.catalog.queries import RelationQuery

EXCLUDED = "excluded"  # name of the row to insert in ON CONFLICT, as in PostgreSQL


@dataclass(frozen=True, slots=True)
class OnConflict:
    """ON CONFLICT clause, which updates or retains the stored row with the same key.

    The stored row is updated if `where` holds. Without assignments the stored row is not changed.
    """

    assignments: tuple[tuple[str, Expr], ...] = ()
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class InsertRows:
    """INSERT of rows in VALUES or of the rows of a query.

    `columns` are in the order of the values. Without `conflict` a duplicate key is an error.
    """

    table: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Expr, ...], ...] = ()
    query: RelationQuery | None = None
    conflict: OnConflict | None = None


@dataclass(frozen=True, slots=True)
class UpdateRows:
    table: str
    assignments: tuple[tuple[str, Expr], ...]
    where: Expr | None


@dataclass(frozen=True, slots=True)
class DeleteRows:
    table: str
    where: Expr | None


@dataclass(frozen=True, slots=True)
class TruncateTable:
    table: str


TableChange: TypeAlias = InsertRows | UpdateRows | DeleteRows | TruncateTable


def source_relations(change: TableChange) -> Iterator[str]:
    """Yield the tables and views that a change reads, other than the changed table."""
    if isinstance(change, InsertRows) and change.query is not None:
        yield from relations_of(change.query)
    for expr in _expressions(change):
        for node in walk(expr):
            if isinstance(node, (ScalarQuery, ExistsQuery)):
                yield from relations_of(node.query)


def _expressions(change: TableChange) -> Iterator[Expr]:
    assigned: tuple[tuple[str, Expr], ...] = ()
    where: Expr | None = None
    if isinstance(change, InsertRows):
        yield from (value for row in change.rows for value in row)
        if change.conflict is not None:
            assigned, where = change.conflict.assignments, change.conflict.where
    elif isinstance(change, UpdateRows):
        assigned, where = change.assignments, change.where
    elif isinstance(change, DeleteRows):
        where = change.where
    yield from (value for _, value in assigned)
    if where is not None:
        yield where

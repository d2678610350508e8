"""Changes of a table's rows: INSERT, UPDATE, DELETE, TRUNCATE, bound and typed.

They declare nothing: what they leave is the table's next version.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from slicemill.esl.types.catalog import relations_of
from slicemill.esl.types.expression import ExistsQuery, Expr, ScalarQuery, walk
from slicemill.esl.types.relation import RelationQuery

EXCLUDED = "excluded"  # the row that was to be inserted, in ON CONFLICT


@dataclass(frozen=True, slots=True)
class OnConflict:
    """What becomes of the row that has the key already: it is set anew, where a condition holds, or stays."""

    assignments: tuple[tuple[str, Expr], ...] = ()
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class InsertRows:
    """Rows given as values, or those of a query; `columns` are the table's in the order of the values.

    Without `conflict` a key that is there already is a mistake.
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


def relations_asked(change: TableChange) -> Iterator[str]:
    """The names of the tables and views that a change reads besides the table itself."""
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

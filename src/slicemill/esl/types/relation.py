"""Queries over finite relations: tables, views, and the state of aggregates (M29, M40).

Here SQL means what it always means: aggregates may block, results may be sorted and cut.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Column, Schema


@dataclass(frozen=True, slots=True)
class SelectItem:
    """One output column: its name and how it is computed."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of a base aggregate; what it returns is read as columns.

    `name` is looked up in the catalog: a user's definition wins over a built-in.
    """

    name: str
    arguments: tuple[Expr, ...]
    distinct: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RelationInput:
    """One table of FROM. Its columns are read as `alias.column`, so that an inner query sees an outer row.

    With `arguments` it is `TABLE(f(…))`: `query` gives the rows for their values, which it reads as arguments
    by these names. They are computed for each combination of rows of the inputs before it. Without `query`,
    it is `UNNEST(…)`, and the argument is the list. The rows of `more` follow those of `query`: a UNION ALL.
    """

    relation: str
    alias: str
    schema: Schema
    query: RelationQuery | None = None  # a sub-query in place of a table
    arguments: tuple[tuple[str, Expr], ...] | None = None
    more: tuple[RelationQuery, ...] = ()

    @property
    def queries(self) -> tuple[RelationQuery, ...]:
        """Return the queries whose rows the input has, if it has no table's."""
        return () if self.query is None else (self.query, *self.more)


@dataclass(frozen=True, slots=True)
class RelationQuery:
    inputs: tuple[RelationInput, ...]
    where: Expr | None
    group_by: tuple[SelectItem, ...]
    aggregates: tuple[AggregateCall, ...]
    having: Expr | None
    items: tuple[SelectItem, ...]
    distinct: bool
    order_by: tuple[tuple[Expr, bool], ...]  # expression, descending
    limit: int | None
    schema: Schema

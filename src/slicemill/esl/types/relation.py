"""Queries over finite relations: tables, views, aggregates' state (M29, M40).

These queries have the semantics of standard SQL: aggregates may block, and results may be sorted and limited.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Column, Schema


@dataclass(frozen=True, slots=True)
class SelectItem:
    """Output column: its name and expression."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """Call of a base aggregate, whose results are read as columns.

    `name` is resolved in the catalog, where a user's definition precedes a built-in.
    """

    name: str
    arguments: tuple[Expr, ...]
    distinct: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RelationInput:
    """Entry of FROM.

    Its columns are read as `alias.column`, so that an inner query can read an outer row. With `arguments` the
    entry is `TABLE(f(…))`: `query` returns the rows, and reads the values by these argument names. The call
    is evaluated for each combination of rows of the preceding inputs. Without `query` the entry is
    `UNNEST(…)`, whose argument is the list. The rows of `more` follow those of `query`, as in UNION ALL.
    """

    relation: str
    alias: str
    schema: Schema
    query: RelationQuery | None = None  # a sub-query in place of a table
    arguments: tuple[tuple[str, Expr], ...] | None = None
    more: tuple[RelationQuery, ...] = ()

    @property
    def queries(self) -> tuple[RelationQuery, ...]:
        """Return the queries whose rows the input has; () for a table."""
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

"""Aggregate definitions, bound and typed (M29-M38).

An aggregate is a small program: local tables, and a list of statements over them for each state.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, TypeAlias

from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import RelationQuery
from slicemill.extension import AggregateProvider
from slicemill.types import Schema

RETURN = "RETURN"
INWINDOW = "inwindow"
CONTENT_NAME = "content name"  # metadata of a field: its name in digests of content, which name stored state


class BodyState(StrEnum):
    INITIALIZE = "INITIALIZE"
    ITERATE = "ITERATE"
    TERMINATE = "TERMINATE"
    EXPIRE = "EXPIRE"


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT into a local table or RETURN.

    The rows are given under a condition, or come from a query. While a body is being bound, the target may
    also be a `stored` table. Definitions have such inserts only in `written`.
    """

    table: str
    rows: tuple[tuple[Expr, ...], ...] = ()
    where: Expr | None = None
    query: RelationQuery | None = None
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    table: str
    assignments: tuple[tuple[str, Expr], ...]
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Delete:
    table: str
    where: Expr | None


@dataclass(frozen=True, slots=True)
class While:
    """WHILE loop: repeat the statements as long as the condition holds."""

    condition: Expr
    statements: tuple[Statement, ...]


Change: TypeAlias = Insert | Update | Delete
Statement: TypeAlias = Change | While


def changes_in(statements: Iterable[Statement]) -> Iterator[Change]:
    """Yield the statements that change tables, also inside loops."""
    for statement in statements:
        if isinstance(statement, While):
            yield from changes_in(statement.statements)
        else:
            yield statement


@dataclass(frozen=True, slots=True)
class LocalTable:
    name: str
    schema: Schema


class Formula:
    """Computation of a returned column by an extension: a frozen dataclass."""

    __slots__ = ()
    provider: ClassVar[AggregateProvider]


@dataclass(frozen=True, slots=True)
class AggregateDefinition:
    """One CREATE AGGREGATE: the base or window version of a name.

    Instead of `bodies`, `external` names a Python class `module:class`, or an extension evaluates
    `formulas`, one for each returned column. `options` are for the code of the extension alone. For each
    stored table that the bodies insert into, `written` has an aggregate that returns only these rows; its
    `into` names the table.
    """

    name: str
    arguments: Schema
    returns: Schema
    window: bool
    algebraic: bool
    tables: tuple[LocalTable, ...] = ()
    bodies: dict[BodyState, tuple[Statement, ...]] = field(default_factory=dict, hash=False)
    external: str | None = None
    external_terminates: bool = False
    formulas: tuple[Formula, ...] = field(default=(), metadata={CONTENT_NAME: "models"})
    options: frozenset[str] = frozenset()
    written: tuple[AggregateDefinition, ...] = ()
    into: str | None = None

    @property
    def provider(self) -> AggregateProvider | None:
        """Return the provider of the formulas, or None for an aggregate of the core."""
        return self.formulas[0].provider if self.formulas else None

    @property
    def blocking(self) -> bool:
        """Return True if the aggregate answers at its input's end (M29).

        This is decided by syntax alone.
        """
        terminates = self.external_terminates or (self.provider is not None and not self.window)
        return terminates or bool(self.bodies.get(BodyState.TERMINATE))

    @property
    def returns_on_expiry(self) -> bool:
        return self.external is not None or BodyState.EXPIRE in self.returning

    @property
    def returning(self) -> frozenset[BodyState]:
        """Return the states whose bodies insert into RETURN."""
        return frozenset(
            state
            for state, statements in self.bodies.items()
            if any(isinstance(one, Insert) and one.table == RETURN for one in changes_in(statements))
        )

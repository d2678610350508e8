"""Definitions of user-defined aggregates, bound and typed (M29-M38).

An aggregate has local tables, which hold its state, and SQL statements over them for each phase: INITIALIZE
for the first tuple, ITERATE for each later tuple, EXPIRE for a tuple that leaves the window, and TERMINATE at
the end. The *base version* of an aggregate covers all tuples of its input. The *window version* (CREATE
WINDOW AGGREGATE) covers a sliding window.
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
CONTENT_NAME = "content name"  # metadata key of a dataclass field, for the field's name in content digests


class BodyState(StrEnum):
    INITIALIZE = "INITIALIZE"
    ITERATE = "ITERATE"
    TERMINATE = "TERMINATE"
    EXPIRE = "EXPIRE"


@dataclass(frozen=True, slots=True)
class Insert:
    """INSERT in an aggregate: into a local table, or INTO RETURN, which returns rows.

    The inserted rows are `rows`, if `where` holds, or the result of `query`. `stored` marks an INSERT into a
    table of the catalog. The mark occurs only while a body is being bound: a bound definition has these
    inserts in `written`.
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
    """WHILE loop, which repeats statements as long as the condition holds."""

    condition: Expr
    statements: tuple[Statement, ...]


Change: TypeAlias = Insert | Update | Delete
Statement: TypeAlias = Change | While


def changes_in(statements: Iterable[Statement]) -> Iterator[Change]:
    """Yield INSERT, UPDATE and DELETE statements, including those in WHILE loops."""
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
    """Base class of formulas with which an extension computes a returned column.

    Subclasses are frozen dataclasses.
    """

    __slots__ = ()
    provider: ClassVar[AggregateProvider]


@dataclass(frozen=True, slots=True)
class AggregateDefinition:
    """Aggregate of CREATE AGGREGATE: over all tuples, or over a window if `window`.

    An aggregate has statements in `bodies`, a Python class `module:class` in `external`, or one formula of an
    extension for each returned column in `formulas`. Only the code of the extension reads `options`.

    `written` has an aggregate for each stored table that the bodies insert into. It returns only the rows of
    these inserts, and its `into` is the name of the table.
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
        """Return the extension that provides the formulas, or None."""
        return self.formulas[0].provider if self.formulas else None

    @property
    def blocking(self) -> bool:
        """Return True if the aggregate emits at the end of its input (M29).

        The result depends only on the syntax of the definition.
        """
        terminates = self.external_terminates or (self.provider is not None and not self.window)
        return terminates or bool(self.bodies.get(BodyState.TERMINATE))

    @property
    def returns_on_expiry(self) -> bool:
        return self.external is not None or BodyState.EXPIRE in self.returning

    @property
    def returning(self) -> frozenset[BodyState]:
        """Return the phases, such as ITERATE, whose statements INSERT INTO RETURN."""
        return frozenset(
            state
            for state, statements in self.bodies.items()
            if any(isinstance(one, Insert) and one.table == RETURN for one in changes_in(statements))
        )

"""Aggregate definitions, bound and typed (M29-M38).

An aggregate is a small program: local tables and, per state, a list of statements over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.relation import RelationQuery
from slicemill.esl.types.schema import Schema

if TYPE_CHECKING:
    from slicemill.model.model import Model

RETURN = "RETURN"
INWINDOW = "inwindow"


class BodyState(StrEnum):
    INITIALIZE = "INITIALIZE"
    ITERATE = "ITERATE"
    TERMINATE = "TERMINATE"
    EXPIRE = "EXPIRE"


@dataclass(frozen=True, slots=True)
class Insert:
    """Into a local table or RETURN: rows given as values under a condition, or the rows of a query.

    While a body is bound, also into a `stored` table; definitions have none of these (`writing`).
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
    """Statements that run again and again as long as a condition holds."""

    condition: Expr
    statements: tuple[Statement, ...]


Change: TypeAlias = Insert | Update | Delete
Statement: TypeAlias = Change | While


def changes_in(statements: Iterable[Statement]) -> Iterator[Change]:
    """What changes tables, also inside of loops."""
    for statement in statements:
        if isinstance(statement, While):
            yield from changes_in(statement.statements)
        else:
            yield statement


@dataclass(frozen=True, slots=True)
class LocalTable:
    name: str
    schema: Schema


@dataclass(frozen=True, slots=True)
class AggregateDefinition:
    """One CREATE AGGREGATE. The base and the window version of a name are two definitions.

    In place of the bodies, `external` names a Python class `module:class`, or `models` are formulas, one for
    each column that is returned; `read_again` are those of their cores that are cheaper to read again (C18).
    `written` has, for each stored table that the bodies insert into, the aggregate that returns what they
    insert there, and nothing else; it says that table in `into`.
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
    models: tuple[Model, ...] = ()
    read_again: frozenset[str] = frozenset()
    written: tuple[AggregateDefinition, ...] = ()
    into: str | None = None

    @property
    def model(self) -> Model | None:
        """The formula that it is, or the first of several."""
        return self.models[0] if self.models else None

    @property
    def blocking(self) -> bool:
        """Purely syntactic (M29): an aggregate with anything to do at the end of its input waits for it."""
        terminates = self.external_terminates or (self.model is not None and not self.window)
        return terminates or bool(self.bodies.get(BodyState.TERMINATE))

    @property
    def returns_on_expiry(self) -> bool:
        return self.external is not None or BodyState.EXPIRE in self.returning

    @property
    def returning(self) -> frozenset[BodyState]:
        """The states in which a body inserts into RETURN."""
        return frozenset(
            state
            for state, statements in self.bodies.items()
            if any(isinstance(one, Insert) and one.table == RETURN for one in changes_in(statements))
        )

"""Code generator interface for one version of an aggregate."""

from __future__ import annotations

from typing import Protocol

from slicemill.aggregate.compiler.layout import RecordColumns
from slicemill.aggregate.compiler.version import Version
from slicemill.esl.types.aggregate import BodyState


class AggregateCode(Protocol):
    """Writes a version: ESL statements, calls of a Python class, or models.

    `pools` are the tables of many rows that it stores outside of its record.
    """

    @property
    def version(self) -> Version: ...

    @property
    def pools(self) -> list[str]: ...

    def columns(self) -> RecordColumns:
        """Return the fields of the record."""
        ...

    def pool_columns(self, table: str) -> RecordColumns: ...

    def reset(self) -> None:
        """Write the code that resets the state to empty."""
        ...

    def statements(self, state: BodyState, bound: bool = True) -> None:
        """Write the statements of a state; `bound`: arguments have values."""
        ...

    def bind_last(self, started: str) -> None:
        """Write code that binds TERMINATE's arguments to those of the last tuple.

        The arguments are NULL if there was no tuple.
        """
        ...

    def bound_of(self, state: BodyState) -> int | None:
        """Return the maximum number of rows a state returns; None if unknown."""
        ...

    def returns_at_steps(self) -> bool:
        """Return True if arriving tuples may return rows."""
        ...

    def needs_window(self) -> bool:
        """Return True if the version depends on the window's content."""
        ...

    @property
    def one_body(self) -> bool:
        """Return True if the first tuple and later ones share their statements."""
        ...

    @property
    def answers_once(self) -> bool:
        """Return True if each tuple returns exactly one row on arrival."""
        ...

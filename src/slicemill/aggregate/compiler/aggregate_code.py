"""What the loops of all strategies ask of whoever writes one version of an aggregate."""

from __future__ import annotations

from typing import Protocol

from slicemill.aggregate.compiler.layout import RecordColumns
from slicemill.aggregate.compiler.version import Version
from slicemill.esl.types.aggregate import BodyState


class AggregateCode(Protocol):
    """Writes a version: statements of ESL, calls of a Python class, or models.

    `pools` are the tables of many rows that it keeps outside of its record.
    """

    @property
    def version(self) -> Version: ...

    @property
    def pools(self) -> list[str]: ...

    def columns(self) -> RecordColumns:
        """The fields of the record."""
        ...

    def pool_columns(self, table: str) -> RecordColumns: ...

    def reset(self) -> None:
        """The aggregate begins again."""
        ...

    def statements(self, state: BodyState, bound: bool = True) -> None:
        """All that happens in a state; `bound`: the arguments have values."""
        ...

    def bind_last(self, started: str) -> None:
        """For TERMINATE: the arguments of the last tuple, NULL if there was none."""
        ...

    def bound_of(self, state: BodyState) -> int | None:
        """How many rows a state returns at most; None where nothing can be said."""
        ...

    def returns_at_steps(self) -> bool:
        """Whether it returns rows when a tuple comes."""
        ...

    def needs_window(self) -> bool:
        """Whether the version can tell what the window holds."""
        ...

    @property
    def one_body(self) -> bool:
        """Whether the first tuple and later ones share their statements."""
        ...

    @property
    def answers_once(self) -> bool:
        """Whether every tuple returns exactly one row when it comes."""
        ...

"""What all operators of a query graph have in common: immutable data that says what to compute, not how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast


class Operator:
    """What a node computes: a frozen dataclass, registered with its kind (`operators.registry`)."""

    __slots__ = ()


class SharedOperator(Operator):
    """One operator for several queries, its members. A `Part` behind it is what one of them gets."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def members(self) -> tuple[Any, ...]: ...


def with_members(shared: SharedOperator, members: Iterable[Any]) -> SharedOperator:
    """A shared operator with other members of its own kind."""
    return cast(SharedOperator, replace(cast(Any, shared), members=tuple(members)))

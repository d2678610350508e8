"""Base classes of operators: immutable specifications of what to compute."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast


class Operator:
    """Specification of a node: a frozen dataclass, registered in `operators.registry`."""

    __slots__ = ()


class SharedOperator(Operator):
    """One operator for several queries, its members.

    A `Part` that reads the operator provides the result of one member.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def members(self) -> tuple[Any, ...]: ...


def with_members(shared: SharedOperator, members: Iterable[Any]) -> SharedOperator:
    """Return a shared operator with other members of the same kind."""
    return cast(SharedOperator, replace(cast(Any, shared), members=tuple(members)))

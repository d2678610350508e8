"""Registry of all operators, including operators of extensions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from slicemill.extension import extensions, load
from slicemill.operators import specs
from slicemill.operators.changelog import spec as changelog
from slicemill.operators.join import spec as join
from slicemill.operators.protocol import Keys, Operator, OperatorKind
from slicemill.operators.session import spec as session
from slicemill.operators.temporal import spec as temporal
from slicemill.operators.window import spec as window

_KINDS: tuple[OperatorKind[Any], ...] = (
    *specs.KINDS,
    *join.KINDS,
    *window.KINDS,
    *session.KINDS,
    *changelog.KINDS,
    *temporal.KINDS,
)


@cache
def kinds() -> tuple[OperatorKind[Any], ...]:
    """Return the registrations of all operators; those of extensions come last."""
    hooks = [operators for extension in extensions().values() for operators in extension.operators]
    return (*_KINDS, *(kind for operators in hooks for kind in load(operators.kinds)))


@cache
def _by_class() -> Mapping[type[Operator], OperatorKind[Any]]:
    return {kind.spec: kind for kind in kinds()}


def kind_of(operator: Operator) -> OperatorKind[Any]:
    """Return the registration (planning properties) of an operator's class."""
    return _by_class()[type(operator)]


def partition_keys(operator: Operator) -> tuple[Keys, ...] | None:
    """Return for each input of an operator the keys by which its rows can be partitioned.

    Return None if an input has no keys.
    """
    keys = kind_of(operator).keys(operator)
    return keys if keys is not None and all(keys) else None

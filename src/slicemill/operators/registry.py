"""Registry of all operators, one line for each package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from slicemill.extensions.classify import spec as classify
from slicemill.extensions.models import spec as models
from slicemill.operators import specs
from slicemill.operators.changelog import spec as changelog
from slicemill.operators.join import multiway_spec as multiway_join
from slicemill.operators.join import spec as join
from slicemill.operators.protocol import Keys, Operator, OperatorKind
from slicemill.operators.session import spec as session
from slicemill.operators.temporal import spec as temporal
from slicemill.operators.window import spec as window

KINDS: tuple[OperatorKind[Any], ...] = (
    *specs.KINDS,
    *join.KINDS,
    *multiway_join.KINDS,
    *window.KINDS,
    *session.KINDS,
    *changelog.KINDS,
    *temporal.KINDS,
    *models.KINDS,
    *classify.KINDS,
)

_BY_CLASS = {kind.spec: kind for kind in KINDS}


def kind_of(operator: Operator) -> OperatorKind[Any]:
    """Return the registration of an operator's class."""
    return _BY_CLASS[type(operator)]


def partition_keys(operator: Operator) -> tuple[Keys, ...] | None:
    """Return by input the keys that partition an operator; None without keys."""
    keys = kind_of(operator).keys(operator)
    return keys if keys is not None and all(keys) else None


@cache
def imported(name: str) -> Callable[..., Any]:
    """Import the function that a kind names as `module:name`."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found

"""Registry of all operators, one line for each package."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

from slicemill.operators.asof import spec as asof
from slicemill.operators.classify import spec as classify
from slicemill.operators.coalesce import spec as coalesce
from slicemill.operators.distinct import spec as distinct
from slicemill.operators.drop import spec as drop
from slicemill.operators.emit import spec as emit
from slicemill.operators.group import spec as group
from slicemill.operators.group_changes import spec as group_changes
from slicemill.operators.join import spec as join
from slicemill.operators.join_changes import spec as join_changes
from slicemill.operators.kind import Keys, OperatorKind
from slicemill.operators.lookup import spec as lookup
from slicemill.operators.models import spec as models
from slicemill.operators.multijoin import spec as multijoin
from slicemill.operators.operator import Operator
from slicemill.operators.over import spec as over
from slicemill.operators.panes import spec as panes
from slicemill.operators.part import spec as part
from slicemill.operators.punctuated_join import spec as punctuated_join
from slicemill.operators.reorder import spec as reorder
from slicemill.operators.select import spec as select
from slicemill.operators.session_changes import spec as session_changes
from slicemill.operators.sessions import spec as sessions
from slicemill.operators.streams import spec as streams
from slicemill.operators.table_call import spec as table_call
from slicemill.operators.topn import spec as topn
from slicemill.operators.union import spec as union
from slicemill.operators.unnest import spec as unnest
from slicemill.operators.window_changes import spec as window_changes
from slicemill.operators.window_top import spec as window_top
from slicemill.operators.windowed_group import spec as windowed_group

KINDS: tuple[OperatorKind[Any], ...] = (
    *streams.KINDS,
    *select.KINDS,
    *drop.KINDS,
    *union.KINDS,
    *lookup.KINDS,
    *table_call.KINDS,
    *unnest.KINDS,
    *join.KINDS,
    *join_changes.KINDS,
    *punctuated_join.KINDS,
    *multijoin.KINDS,
    *asof.KINDS,
    *group.KINDS,
    *group_changes.KINDS,
    *distinct.KINDS,
    *topn.KINDS,
    *window_changes.KINDS,
    *window_top.KINDS,
    *emit.KINDS,
    *windowed_group.KINDS,
    *over.KINDS,
    *panes.KINDS,
    *sessions.KINDS,
    *session_changes.KINDS,
    *reorder.KINDS,
    *models.KINDS,
    *part.KINDS,
    *coalesce.KINDS,
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

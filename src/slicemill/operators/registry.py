"""Which step a node gets. An operator with no kernel of its own is hosted.

A kind of stateful operator brings a maker: a function that looks at a node and returns its step, or None if
the node is not of its kind. The first maker in `MAKERS` that takes the node wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from slicemill.columns.order import Numbering
from slicemill.operators import specs as op
from slicemill.operators import state_codecs  # noqa: F401 - says how states store what they hold of a plan
from slicemill.operators.classify.step import classify
from slicemill.operators.coalesce.step import coalesce
from slicemill.operators.drop.step import DropStep, WholeWindowsStep
from slicemill.operators.group.step import group_calls
from slicemill.operators.join.step import shared_join
from slicemill.operators.lookup.view_step import view_lookup
from slicemill.operators.making import Making
from slicemill.operators.over.builtin_step import builtin_windows
from slicemill.operators.over.compiled_step import shared_models, window_calls
from slicemill.operators.panes.step import shared_windows
from slicemill.operators.row_step import RowState, RowStep
from slicemill.operators.select.step import FilterStep, InOrderStep, LookupStep, ProjectStep, SinkStep
from slicemill.operators.step import SharedStep, StatefulStep, Step
from slicemill.operators.union.step import MergeState, MergeStep
from slicemill.operators.windowed_group.count_windows import count_windows
from slicemill.operators.windowed_group.living_windows import living_windows
from slicemill.plan.log_keys import partition_keys

Maker: TypeAlias = Callable[[Making], StatefulStep | SharedStep | None]


def stateless_step(making: Making) -> Step | None:
    operator = making.node.operator
    if isinstance(operator, op.Filter):
        return FilterStep(operator.condition, making.schemas[0])
    if isinstance(operator, op.Project):
        return ProjectStep(operator.items, making.schemas[0])
    if isinstance(operator, op.InOrder):
        return InOrderStep(operator, making.node.schema, making.seq_bits)
    if isinstance(operator, op.WholeWindows):
        return WholeWindowsStep(operator)
    if isinstance(operator, op.Sink):
        return SinkStep()
    if isinstance(operator, op.Lookup):
        found = making.graph[making.node.inputs[1]]
        if isinstance(found.operator, op.Scan):
            rows = making.translator.rows_of(found.operator.relation)
            schemas = (making.schemas[0], found.schema)
            return LookupStep(operator, *schemas, rows, operator.left, making.seq_bits)
    return None


def stateful_step(making: Making) -> StatefulStep | SharedStep:
    made = (maker(making) for maker in MAKERS)
    return next((step for step in made if step is not None), None) or _hosted(making)


def _merge(making: Making) -> StatefulStep | None:
    if not isinstance(making.node.operator, op.Merge):
        return None
    state = making.state if isinstance(making.state, MergeState) else MergeState()
    return MergeStep(state, len(making.schemas), making.node.schema)


def _drop(making: Making) -> StatefulStep | None:
    return DropStep(making.node.operator, making) if isinstance(making.node.operator, op.Drop) else None


def _hosted(making: Making) -> StatefulStep:
    keys = partition_keys(making.node.operator)
    known = making.state if isinstance(making.state, RowState) else None
    operator = making.translator.operator(making.node)
    numbering = None if keys is None else Numbering(making.seq_bits, ranks=True, fans=True)
    return RowStep(operator, making.schemas, making.node.schema, numbering, known)


MAKERS: tuple[Maker, ...] = (
    _merge,
    _drop,
    shared_windows,
    shared_join,
    shared_models,
    window_calls,
    group_calls,
    builtin_windows,
    count_windows,
    living_windows,
    view_lookup,
    coalesce,
    classify,
)

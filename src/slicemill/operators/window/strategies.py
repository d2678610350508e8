"""Choice of the strategy that evaluates a window operator."""

from __future__ import annotations

from slicemill.aggregates.functions import has_kernel
from slicemill.catalog.queries import FrameUnit
from slicemill.operators.protocol import Operator, SharedOperator
from slicemill.operators.session.spec import SessionAggregate, SharedSessions
from slicemill.operators.session.step import session_windows
from slicemill.operators.step import StepContext
from slicemill.operators.window.expiring_rows import CountedWindows, CountedWithOver, TimedWindows, over_form
from slicemill.operators.window.over import cohort_windows, over_windows
from slicemill.operators.window.panes import pane_windows
from slicemill.operators.window.routines import routine_windows
from slicemill.operators.window.spec import (
    RelationAggregate,
    SharedOver,
    SharedWindows,
    WindowAggregate,
    WindowTop,
    counting_window,
    returns_many,
)
from slicemill.operators.window.step import SharedWindowStep, WindowStep, WindowStrategy
from slicemill.operators.window.top import TopWindows


def window_step(operator: Operator, context: StepContext) -> SharedWindowStep | WindowStep:
    """Return the execution step of a window operator, for one query or for several queries."""
    strategy = window_strategy(operator, context)
    return (SharedWindowStep if isinstance(operator, SharedOperator) else WindowStep)(strategy)


def window_strategy(operator: Operator, context: StepContext) -> WindowStrategy:
    """Choose the strategy of a window operator, by the table in `slicemill.operators.window`."""
    match operator:
        case SharedWindows():
            return pane_windows(operator, context)
        case SharedOver():
            return cohort_windows(operator, context)
        case WindowAggregate(calls):
            if returns_many(calls, context.catalog) or not all(map(has_kernel, calls)):
                return routine_windows(operator, context)
            return over_windows(operator, context)
        case RelationAggregate():
            if (window := counting_window(operator, context.catalog)) is not None:
                over, own = over_form(operator, window, context)
                step = WindowStep(window_strategy(over, own))
                return CountedWithOver(operator, context, step, own.node.schema)
            by_rows = operator.windows[0][1].frame is FrameUnit.ROWS
            return (CountedWindows if by_rows else TimedWindows)(operator, context)
        case SessionAggregate() | SharedSessions():
            return session_windows(operator, context)
        case WindowTop():
            return TopWindows(operator, context)
    raise AssertionError(f"{operator} has no windows")

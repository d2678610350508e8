"""Check that the windows of a call fit a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sqlglot import exp

from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.queries import FrameUnit, Window
from slicemill.sql.errors import Mistake
from slicemill.sql.nodes import span_of

if TYPE_CHECKING:
    from slicemill.extensions.models.model import Model


def check_model_over(definition: AggregateDefinition | None, window: Window, node: exp.Expression) -> None:
    """Check the window of a model call with OVER."""
    model = None if definition is None else definition.model
    if model is None:
        return
    if window.active:
        raise Mistake(
            "a model answers when tuples come, not when they expire",
            span_of(node),
            "leave ACTIVE EXPIRATION out",
        )
    check_positions(model, [window], grouped=False, node=node)


def check_positions(
    model: Model, windows: Iterable[Window | None], *, grouped: bool, node: exp.Expression
) -> None:
    """Check that a positional model has windows of fixed length (C6).

    A time window, or a group in a window, has no fixed number of rows.
    """
    if not model.uses_position:
        return
    by_time = any(w is not None and w.extent is not None and w.frame is FrameUnit.RANGE for w in windows)
    if by_time:
        raise Mistake(
            "this model uses position i, and a window of time has no fixed number of positions",
            span_of(node),
            "use ROWS … PRECEDING, or weights by age",
        )
    if grouped:
        raise Mistake(
            "this model uses position i, and a group of a window has no fixed number of positions",
            span_of(node),
            "use OVER (PARTITION BY … ROWS … PRECEDING)",
        )

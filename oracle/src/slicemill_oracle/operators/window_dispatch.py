"""Dispatch of window calls to evaluations, by strategy (M37)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from slicemill.aggregates.definition import (
    Panes,
    RowAggregate,
    RowCall,
    Strategy,
    base_of,
    strategy_of,
    window_version,
)
from slicemill.aggregates.frames import WindowFrame
from slicemill_oracle.operators.window_active import ActiveCall
from slicemill_oracle.operators.window_evaluation import (
    Evaluation,
    PaneEvaluation,
    TumblingEvaluation,
    UnboundedEvaluation,
    WindowedEvaluation,
)
from slicemill_oracle.operators.window_slide import ImmediateCall, Partitions, RunningCall, SlotEndCall


def running_call(call: RowCall, frame: WindowFrame) -> RunningCall:
    """Return the state machine for a window call."""
    if frame.active:
        definition = call.definition
        # EXPIRE must run for every tuple that expires, even for built-ins with their own deletion.
        shown = replace(definition, window=None) if definition.forgets else definition
        return ActiveCall(call, frame, window_version(shown))
    partitions = Partitions(call, frame, _evaluation(call.definition, frame))
    return SlotEndCall(frame, partitions) if frame.waits_for_time else ImmediateCall(frame, partitions)


def _evaluation(definition: RowAggregate, frame: WindowFrame) -> Callable[[], Evaluation]:
    match strategy_of(definition, frame):
        case Strategy.UNBOUNDED:
            return partial(UnboundedEvaluation, base_of(definition))
        case Strategy.TUMBLE:
            return partial(TumblingEvaluation, frame, base_of(definition))
        case Strategy.PANES:
            return partial(PaneEvaluation, frame, definition.panes or Panes(base_of(definition), definition))
        case _:
            return partial(WindowedEvaluation, frame, window_version(definition))

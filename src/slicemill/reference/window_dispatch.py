"""Which evaluation a window call gets: the dispatch table of M37."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import partial

from slicemill.aggregate.definition import AggregateCall, AggregateDefinition, Panes, base_of
from slicemill.aggregate.frame import Frame
from slicemill.reference.window_active import ActiveCall
from slicemill.reference.window_evaluation import (
    Evaluation,
    Paned,
    Tumble,
    Unbounded,
    Windowed,
    window_version,
)
from slicemill.reference.window_slide import AnsweredAtOnce, AnsweredAtSlotEnd, Partitions, RunningCall


class Box(Enum):
    """The boxes of the table; the values say how each is evaluated."""

    UNBOUNDED = "base, TERMINATE after each tuple"
    FINITE = "window version"
    TUMBLE = "base restarted in each slot"
    PANES = "base per pane, then window version"
    SLIDING = "window version, output on yield tuples only"
    ACTIVE = "window version and negative tuples"


def box_of(definition: AggregateDefinition, frame: Frame) -> Box:
    if frame.active:
        return Box.ACTIVE
    if frame.length is None:
        return Box.UNBOUNDED
    if frame.slide is None:
        return Box.FINITE
    if frame.slide >= frame.length:
        return Box.TUMBLE
    return Box.PANES if definition.algebraic else Box.SLIDING


def running_call(call: AggregateCall, frame: Frame) -> RunningCall:
    """The state machine for a window call, by its box."""
    if frame.active:
        definition = call.definition
        # That a built-in forgets is its own affair: a user is told of every tuple that leaves, as with avg.
        shown = replace(definition, window=None) if definition.forgets else definition
        return ActiveCall(call, frame, window_version(shown))
    partitions = Partitions(call, frame, _evaluation(call.definition, frame))
    return AnsweredAtSlotEnd(frame, partitions) if frame.waits_for_time else AnsweredAtOnce(frame, partitions)


def _evaluation(definition: AggregateDefinition, frame: Frame) -> Callable[[], Evaluation]:
    match box_of(definition, frame):
        case Box.UNBOUNDED:
            return partial(Unbounded, base_of(definition))
        case Box.TUMBLE:
            return partial(Tumble, frame, base_of(definition))
        case Box.PANES:
            return partial(Paned, frame, definition.panes or Panes(base_of(definition), definition))
        case _:
            return partial(Windowed, frame, window_version(definition))

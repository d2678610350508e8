"""Bind punctuation windows: `auction [CLOSE WHEN event = 'closed'] AS a JOIN bid AS b ON a.id = b.id`.

A tuple that fulfils the condition closes the window of its key. The key consists of the columns that ON
equates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from slicemill.esl.binder.environments import SelectEnvironment
from slicemill.esl.binder.inputs import BoundInput
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.scalar import bind_condition
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.query import FrameUnit, QueryInput


def with_closings(
    entries: Sequence[BoundInput], inputs: Sequence[QueryInput], env: SelectEnvironment, problems: Problems
) -> list[QueryInput]:
    """Return the inputs of a join with their bound CLOSE WHEN conditions."""
    finished = list(inputs)
    streams = [given for given in inputs if not given.finite]
    env.place = "CLOSE WHEN"
    for place, (entry, given) in enumerate(zip(entries, inputs, strict=True)):
        frame = child(entry.node, "frame")
        node = None if frame is None or child(frame, "kind") == "SESSION" else child(frame, "close")
        if node is None or len(streams) < 2:
            continue
        with problems.noting():
            if any(other.is_as_of for other in entries):
                raise Mistake(
                    "an ASOF join keeps the latest row of a key, and no window",
                    span_of(frame),
                    "leave CLOSE WHEN out, or use JOIN",
                )
            _check(frame, node, streams, given)
            with env.seeing(replace(env.scope, relations=((given.alias, given.schema.own),))):
                finished[place] = replace(given, closes=bind_condition(node, env))
    env.place = ""
    return finished


def _check(
    frame: exp.Expression, node: exp.Expression, streams: Sequence[QueryInput], given: QueryInput
) -> None:
    if len(streams) > 2:
        raise Mistake(
            f"CLOSE WHEN is for joins of two streams, and FROM has {len(streams)}",
            span_of(node),
            "join two of them in a stream of their own: CREATE STREAM ab AS SELECT …; then FROM ab, c",
        )
    windows = [entry.window for entry in streams if entry.window is not None]
    if any(w.frame is FrameUnit.ROWS or w.slide is not None or child(frame, "expires") for w in windows):
        raise Mistake(
            "CLOSE WHEN goes with windows of time, or with none",
            span_of(frame),
            f"write {given.alias} [CLOSE WHEN …] or {given.alias} [RANGE 1 HOUR CLOSE WHEN …]",
        )

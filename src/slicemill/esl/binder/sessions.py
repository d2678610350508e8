"""Bind sessions: `[SESSION 30 SECONDS]`, `[SESSION UNTIL expires]`, `[SESSION 1 HOUR CLOSE WHEN last]`.

`[CLOSE WHEN last]` on a stream that is not joined is a punctuation window: a session without a gap, closed by
a tuple that fulfils the condition.
"""

from __future__ import annotations

from collections.abc import Sequence

from slicemill.esl.binder.durations import duration_us
from slicemill.esl.binder.environments import SelectEnvironment
from slicemill.esl.binder.inputs import BoundInput
from slicemill.esl.binder.problems import Problems
from slicemill.esl.binder.scalar import bind, bind_condition
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.query import SessionWindow
from slicemill.esl.types.schema import Kind


def bind_session(
    entries: Sequence[BoundInput], env: SelectEnvironment, problems: Problems
) -> SessionWindow | None:
    """Return the session over which a SELECT aggregates, if any."""
    framed = [(entry, child(entry.node, "frame")) for entry in entries]
    alone = sum(not entry.input.finite for entry in entries) < 2
    found = [
        (entry, frame)
        for entry, frame in framed
        if frame is not None
        and (child(frame, "kind") == "SESSION" or (alone and child(frame, "close") is not None))
    ]
    if not found:
        return None
    entry, frame = found[0]
    session = SessionWindow()
    with problems.noting():
        if len(entries) > 1:
            raise Mistake(
                "sessions are those of one stream",
                span_of(entry.node),
                "make a stream of the join first, CREATE STREAM s AS SELECT …, and take the sessions of s",
            )
        if entry.input.finite:
            raise Mistake(
                f"{entry.input.alias} is finite, and has no sessions", span_of(frame), "name a stream"
            )
        if child(frame, "kind") != "SESSION" and (
            frame.this is not None or child(frame, "slide") is not None
        ):
            raise Mistake(
                "a window that a tuple closes has no length of its own",
                span_of(frame),
                "write [CLOSE WHEN …]; [SESSION 1 HOUR CLOSE WHEN …] ends after an hour without a tuple, too",
            )
        gap = None if frame.this is None else duration_us(frame.this)
        if gap is not None and gap <= 0:
            raise Mistake(
                "a gap of 0 makes each tuple a session", span_of(frame.this), "make it longer than 0"
            )
        env.place = "a session"
        until_node, close_node = child(frame, "until"), child(frame, "close")
        until = None if until_node is None else bind(until_node, env)
        if until is not None and until.type.kind is not Kind.TIMESTAMP:
            raise Mistake(
                f"a session lasts until a time, and this is {until.type}",
                span_of(until_node),
                "name a timestamp column",
            )
        close = None if close_node is None else bind_condition(close_node, env)
        session = SessionWindow(gap, until, close)
    env.place = ""
    return session

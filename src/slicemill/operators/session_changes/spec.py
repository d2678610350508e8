"""Sessions with early emissions: FROM S [SESSION gap] … EMIT EARLY EVERY d.

    rows of a group       x   x     x                         x
    session               [──────────────────)                [─────
    EARLY EVERY d             ↑insert  ↑update                      ↑insert

The result is the changelog of a table with a row per group and session. Its key is the group and the start of
the session. The end of a session is the current one.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.types.query import SessionWindow
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.operators.description import Description, Fact, grouped
from slicemill.operators.kind import OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.operators.sessions.spec import session_words
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class SessionChanges(Operator):
    """Aggregates over the sessions of each group, with early emissions.

    A changed session is emitted when the watermark passes a multiple of `every_us`, and when the session has
    ended.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    session: SessionWindow
    every_us: int


def _words(sessions: SessionChanges) -> Description:
    facts: list[Fact] = [
        *grouped(sessions.calls, sessions.group_by),
        ("session", session_words(sessions.session)),
        ("early", f"every {format_us(sessions.every_us)}"),
    ]
    return Description("γ", "Sessions", (*facts, ("gives", "changes")))


KINDS = (
    OperatorKind(
        spec=SessionChanges,
        role=Role.STATEFUL,
        words=lambda sessions, *_: _words(sessions),
        label=lambda _: "sessions",
        waits_for_time=lambda *_: True,
        history_us=lambda *_: None,
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.session_changes.rows:session_changes",
    ),
)

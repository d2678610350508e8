"""Joins of two streams over punctuation windows: a tuple says that its key is done (S2).

    a, k = 7    ·  a1        a2            a3, closes            a4
    b, k = 7          b1          b2               ·  b3   b4
    windows of 7  [─────────────────────────────)(────────────────
    result      (a1,b1) (a2,b1) (a1,b2) …  (a3,b1) …      (a4,b3) …

A window of a key is one for both streams. It begins with the first tuple behind the one that closed the
window before, and its last tuple is the next that closes. Then all that is kept of the key goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import JoinKind
from slicemill.operators.description import Description, Fact
from slicemill.operators.kind import Keys, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class PunctuatedJoin(Operator):
    """Output columns are `alias.column`; `condition` is over them.

    `keys` are what the condition says is equal, and `closes` which tuples close the window of their key, in
    the inputs' own columns. `lengths` is how long a tuple can be met at most, None: as long as its window is
    open. What has had no partner comes out when it can no longer have one, where `kind` asks for that.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    condition: Expr | None
    kind: JoinKind
    closes: tuple[Expr | None, Expr | None]
    lengths: tuple[int | None, int | None]


def _words(join: PunctuatedJoin) -> Description:
    title = "Join" if join.kind is JoinKind.INNER else f"{join.kind.value.capitalize()} join"
    on = "every row" if join.condition is None else render(join.condition)
    facts: list[Fact] = [("on", on)]
    for alias, close, length in zip(join.aliases, join.closes, join.lengths, strict=True):
        words = [] if length is None else [format_us(length)]
        words += [] if close is None else [f"closed when {render(close)}"]
        facts += [(alias, ", ".join(words))] if words else []
    return Description("⋈", f"{title} over punctuation windows", tuple(facts))


KINDS = (
    OperatorKind(
        spec=PunctuatedJoin,
        role=Role.STATEFUL,
        words=lambda join, *_: _words(join),
        label=lambda _: "join",
        waits_for_time=lambda *_: True,
        alias=lambda join, port: join.aliases[port],
        history_us=lambda *_: None,
        seq_bits=lambda *_: SEQ_BITS,
        by_position=lambda _: True,
        step="slicemill.operators.punctuated_join.rows:punctuated_join",
    ),
)

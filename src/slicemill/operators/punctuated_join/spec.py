"""Joins over punctuation windows: a row closes the window of its key (S2).

    a, k = 7    ·  a1        a2            a3, closes            a4
    b, k = 7          b1          b2               ·  b3   b4
    windows of 7  [─────────────────────────────)(────────────────
    result      (a1,b1) (a2,b1) (a1,b2) …  (a3,b1) …      (a4,b3) …

Both streams share the windows of a key. A window begins with the first row after the previous closing row,
and ends with the next closing row. The state of the key is then deleted.
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
    """Join over punctuation windows; output columns are `alias.column`.

    `condition` is over output columns. `keys` are its equal expressions, and `closes` the conditions of
    closing rows, both over the inputs' own columns. `lengths` are the maximum ages of rows; None if rows stay
    until their window is closed. Depending on `kind`, an unmatched row is emitted when no match is possible
    any more.
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

"""Joins of a changelog with another changelog, or with a stream's history.

    sold            (clock, 10) ─────────────► (clock, 15)            a changelog
    shop            (clock, 'Oslo')       (clock, 'Rome')             another one, or a stream
    result  insert  (clock, 10, 'Oslo')
            insert             (clock, 10, 'Rome')
            update                  (clock, 10 → 15, 'Oslo'), (clock, 10 → 15, 'Rome')

The result is a changelog. At every time it adds up to the join of both tables.
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


@dataclass(frozen=True, slots=True)
class JoinChanges(Operator):
    """Join of changelogs; output columns are the operation and `alias.column`.

    `condition` is over output columns. `keys` are its equal expressions, over the inputs' own columns.
    `retracts` tells which inputs are changelogs. Rows of both inputs are kept until their retraction.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    condition: Expr | None
    kind: JoinKind
    retracts: tuple[bool, bool]


def _words(join: JoinChanges) -> Description:
    title = "Join" if join.kind is JoinKind.INNER else f"{join.kind.value.capitalize()} join"
    on = "every row" if join.condition is None else render(join.condition)
    facts: list[Fact] = [("on", on), ("over", "all history"), ("gives", "changes")]
    return Description("⋈", f"{title} of tables that change", tuple(facts))


KINDS = (
    OperatorKind(
        spec=JoinChanges,
        role=Role.STATEFUL,
        words=lambda join, *_: _words(join),
        label=lambda _: "join",
        by_position=lambda _: True,
        waits_for_time=lambda *_: True,
        alias=lambda join, port: join.aliases[port],
        history_us=lambda *_: None,
        seq_bits=lambda *_: SEQ_BITS,
        step="slicemill.operators.join_changes.rows:join_changes",
    ),
)

"""ASOF joins: each row with the latest row of its key.

A row matches the latest row of the second stream, as of its own time.

    b   k=1: x         y              z
    a               1        1  1        1
    result         (1,x)   (1,y)(1,y)   (1,z)       at the times of a

The second stream acts as a versioned table: the version of a key is its latest row (FOR SYSTEM_TIME AS OF).
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.esl.render.expressions import render
from slicemill.operators.description import Description, Fact
from slicemill.operators.kind import Keys, OperatorKind, Role
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class AsOfJoin(Operator):
    """ASOF join; output columns are `alias.column`.

    Results have the times of input 0. `keys` are over the inputs' own columns. A row of input 1 matches if it
    is no later than the row of input 0, or earlier if `strict`, and less than `window_us` older, if set. With
    `left`, a row without a match is emitted with NULLs.
    """

    aliases: tuple[str, str]
    keys: tuple[Keys, Keys]
    left: bool = False
    strict: bool = False
    window_us: int | None = None


def _words(join: AsOfJoin) -> Description:
    equal = [f"{render(left)} = {render(right)}" for left, right in zip(*join.keys, strict=True)]
    facts: list[Fact] = [("on", " AND ".join(equal) or "every tuple")]
    facts.append(("the latest", "that is earlier" if join.strict else "that is no later"))
    if join.window_us is not None:
        facts.append(("within", format_us(join.window_us)))
    return Description("⋈", "Left as-of join" if join.left else "As-of join", tuple(facts))


KINDS = (
    OperatorKind(
        spec=AsOfJoin,
        role=Role.STATEFUL,
        words=lambda join, *_: _words(join),
        label=lambda _: "as-of join",
        waits_for_time=lambda *_: True,
        alias=lambda join, port: join.aliases[port],
        keys=lambda join: join.keys if join.keys[0] else None,
        history_us=lambda join, *_: join.window_us,
        # Results have the row numbers of the first input.
        numbered_by=lambda _, node, __: node.inputs[:1],
        step="slicemill.operators.asof.step:as_of_step",
    ),
)

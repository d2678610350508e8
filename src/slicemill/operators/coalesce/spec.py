"""Temporal queries: maximal runs of equal attributes."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.columns.sequence_bits import fanned_bits
from slicemill.esl.render.expressions import render
from slicemill.esl.types.budget import Budget
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import LateTuples, Window
from slicemill.esl.types.relation import SelectItem
from slicemill.operators.description import Description, partition
from slicemill.operators.kind import Keys, OperatorKind, Role, UnitOf, longest_us
from slicemill.operators.operator import Operator
from slicemill.time import format_us


@dataclass(frozen=True, slots=True)
class Coalesce(Operator):
    """Maximal runs of equal attributes with their valid period, reported at each slide (L4-L8).

    `where` says which tuples make runs. It is no filter below: a tuple holds until the next one arrives (L3),
    whether or not that one is selected. With a `budget` tuples may be dropped; `wanted` says of which runs
    their accuracy is told. With `tells_open` a last column says whether a run goes on (L3). With `changes` a
    run is reported when it begins and when it ends, and not in between (L8). With `late`, the input has
    late tuples as well, at the time of their arrival: they correct runs from the next report on (L5).
    """

    attributes: tuple[str, ...]
    partition_by: tuple[SelectItem, ...]
    window: Window
    where: Expr | None = None
    budget: Budget | None = None
    wanted: Expr | None = None
    tells_open: bool = False
    changes: bool = False
    late: LateTuples | None = None


def _words(coalesce: Coalesce) -> Description:
    facts = (
        ("runs of", ", ".join(coalesce.attributes)),
        *partition([item.expr for item in coalesce.partition_by]),
        *((("where", render(coalesce.where)),) if coalesce.where is not None else ()),
        *((("memory", str(coalesce.budget)),) if coalesce.budget is not None else ()),
    )
    told = [("report", "changes only")] if coalesce.changes else []
    told += [_late_words(coalesce.late)] if coalesce.late is not None else []
    return Description("", "Coalesce", (*facts, ("window", str(coalesce.window)), *told))


def _late_words(late: LateTuples) -> tuple[str, str]:
    return "late", f"up to {format_us(late.within_us)}: splits runs"


def _keys(coalesce: Coalesce) -> tuple[Keys, ...] | None:
    """Its partitions; those of one with a budget share one memory."""
    return None if coalesce.budget else (tuple(item.expr for item in coalesce.partition_by),)


KINDS = (
    OperatorKind(
        spec=Coalesce,
        role=Role.STATEFUL,
        words=lambda coalesce, *_: _words(coalesce),
        label=lambda _: "coalesce",
        by_position=lambda coalesce: coalesce.budget is not None,
        waits_for_time=lambda *_: True,
        unit=UnitOf.KEYS,
        keys=_keys,
        # With a budget, what is dropped depends on all that came before.
        history_us=lambda coalesce, *_: None if coalesce.budget else longest_us([coalesce.window]),
        seq_bits=lambda _, bits, *__: fanned_bits(bits),
        last_words=True,
        step="slicemill.operators.coalesce.step:coalesce",
    ),
)

"""The chain of a shared join of the plan: what the formulas expect of it (S15, S17-S20)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from slicemill.esl.expression import Expr
from slicemill.esl.query import Frame, Window
from slicemill.plan.operators import SharedJoin
from slicemill.plan.slices.chain import PlannedChain, mem_opt
from slicemill.plan.slices.members import Member, Side
from slicemill.plan.slices.workload import Workload

_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Assumptions:
    """What is not known before a query runs: tuples per second of each stream, shares that pass or match."""

    rate: float = 100.0
    selected: float = 0.5
    matching: float = 0.01


ASSUMED = Assumptions()


def planned_chain(join: SharedJoin, assumed: Assumptions = ASSUMED) -> PlannedChain | None:
    """The slices of a join and their cost; None where windows count rows or never end."""
    if not all(_in_time(window) for member in join.members for window in member.windows):
        return None
    members = tuple(
        Member(member.name, tuple(map(partial(_side, assumed), member.windows, member.selections)))
        for member in join.members
    )
    return mem_opt(Workload(members, (assumed.rate, assumed.rate), assumed.matching))


def _side(assumed: Assumptions, window: Window, selection: Expr | None) -> Side:
    assert window.extent is not None
    return Side(window.extent / _SECOND_US, selection, 1.0 if selection is None else assumed.selected)


def _in_time(window: Window) -> bool:
    return window.frame is Frame.RANGE and bool(window.extent)

"""Planned chain of a shared join, for EXPLAIN (S15, S17-S20)."""

from __future__ import annotations

from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators.join.slices.chain import PlannedChain, mem_opt
from slicemill.operators.join.slices.members import Member, MemberSide
from slicemill.operators.join.slices.statistics import ASSUMED, Statistics
from slicemill.operators.join.slices.workload import JoinWorkload
from slicemill.operators.join.spec import JoinMember, SharedJoin

_SECOND_US = 1_000_000


def planned_chain(join: SharedJoin) -> PlannedChain | None:
    """Return the slices of a join and their cost, from statistics or assumptions.

    None if windows count rows or are unbounded.
    """
    if not all(_in_time(window) for member in join.members for window in member.windows):
        return None
    known = join.measured or ASSUMED
    members = tuple(
        Member(member.name, tuple(_side(known, member, side) for side in (0, 1))) for member in join.members
    )
    return mem_opt(JoinWorkload(members, (known.rates[0], known.rates[1]), known.matching))


def _side(known: Statistics, member: JoinMember, side: int) -> MemberSide:
    window, selection = member.windows[side].extent, member.selections[side]
    assert window is not None
    passing = 1.0 if selection is None else known.passing.get((member.name, side), known.selected)
    return MemberSide(window / _SECOND_US, selection, passing)


def _in_time(window: Window) -> bool:
    return window.frame is FrameUnit.RANGE and bool(window.extent)

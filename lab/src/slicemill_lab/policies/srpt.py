"""Shortest remaining processing time: the query with the least ideal time first (P11)."""

from __future__ import annotations

from collections.abc import Sequence

from slicemill_lab.policies.policy import ByPriority, Unit, static_priority


def srpt(units: Sequence[Unit]) -> ByPriority:
    return static_priority([1.0 / float(unit.segment.ideal_time) for unit in units])

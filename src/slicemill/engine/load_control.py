"""Load control: the share of tuples that the drop boxes of a unit keep in its next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slicemill.operators.drop.spec import Drop
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import AgeLimit, SharedJoin
from slicemill.operators.multijoin.spec import SharedMultiJoin
from slicemill.plan.units import Unit
from slicemill.shedding.control import Backlog, Controller, Skipper, WaitingLoad
from slicemill.shedding.load import Dropping
from slicemill.storage.log import Epoch

_US = 1_000_000
_SKIPS_NOTHING = Skipper(0)


class LoadControl:
    """The controllers of a unit's drop boxes, and of joins that look for fewer pairs, by node.

    Shares and skipped windows last over restarts.
    """

    def __init__(self, unit: Unit, graph: QueryGraph, known: Mapping[str, Sequence[Any]]) -> None:
        boxes = {node: box for node in unit.nodes if isinstance(box := graph[node].operator, Drop)}
        limits: dict[str, Drop | AgeLimit] = {
            member.name: member.limit
            for node in unit.nodes
            if isinstance(join := graph[node].operator, (SharedJoin, SharedMultiJoin))
            for member in join.members
            if member.limit is not None
        }
        self._controllers = {
            node: Controller(limit.budget, limit.weight) for node, limit in (limits | boxes).items()
        }
        self._skippers = {
            node: Skipper(box.range_us) for node, box in boxes.items() if box.range_us is not None
        }
        for node, (share, spans, next_us) in known.items():
            if node in self._controllers:
                self._controllers[node].share = share
            if node in self._skippers:
                self._skippers[node].spans = tuple((first, last) for first, last in spans)
                self._skippers[node].next_us = next_us

    @property
    def weight(self) -> float:
        """Of the queries that may have to give something up; 0 if none does."""
        weights = [controller.weight for controller in self._controllers.values()]
        return sum(weights) / len(weights) if weights else 0.0

    def decide(
        self, epochs: Mapping[str, Sequence[Epoch]], state_bytes: int, backlog: Backlog, now: int
    ) -> dict[str, Dropping]:
        """For a run over these epochs that begins now, with so much waiting on the machine."""
        if not self._controllers:
            return {}
        pending = [epoch for new in epochs.values() for epoch in new if epoch.rows]
        if not pending:
            # Windows may close all the same: those that were skipped stay so.
            return {node: Dropping(1.0, skipper.spans) for node, skipper in self._skippers.items()}
        rows = sum(epoch.rows for epoch in pending)
        waiting = WaitingLoad(
            waited_s=max(0, now - min(epoch.arrival_us for epoch in pending)) / _US,
            rows=rows,
            state_bytes=state_bytes,
            # As they came: what a unit makes of them is at most as large.
            bytes_per_row=sum(epoch.bytes for epoch in pending) / rows,
            backlog=backlog,
        )
        first = min(epoch.min_ts for epoch in pending if epoch.min_ts is not None)
        decided = {}
        for node, controller in self._controllers.items():
            share = controller.decide(waiting)
            skipper = self._skippers.get(node)
            decided[node] = Dropping(share, skipper.plan(share, first) if skipper is not None else ())
        return decided

    def plain(self) -> dict[str, list[Any]] | None:
        """What the journal keeps of it; None if there is nothing to decide."""
        kept: dict[str, list[Any]] = {}
        for node, controller in self._controllers.items():
            skipper = self._skippers.get(node, _SKIPS_NOTHING)
            kept[node] = [controller.share, skipper.spans, skipper.next_us]
        return kept or None

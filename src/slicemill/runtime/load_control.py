"""Load shedding of a task: how many rows or join comparisons are processed under load.

A join with a load budget keeps all rows but makes only a share of the comparisons: it compares only with rows
in the newest part of its windows. The driver decides the share once for all subtasks of a task, from their
total comparisons, so that results do not depend on the number of subtasks (S54, S55).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from slicemill.catalog.queries import LoadBudget
from slicemill.metrics.run_record import RunRecord
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.spec import AgeLimit, SharedJoin
from slicemill.operators.protocol import longest_us
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import Drop
from slicemill.plan.tasks import Task
from slicemill.shedding.load import (
    Backlog,
    Comparisons,
    ComparisonsByAge,
    ShareController,
    SheddingDecision,
    WaitingLoad,
    WindowSkipper,
)
from slicemill.storage.log import Epoch
from slicemill.time import SECOND_US

_SKIPS_NOTHING = WindowSkipper(0)


class LoadControl:
    """Controllers of load shedding in a task, one for each operator that sheds.

    Drop boxes (operators that drop rows), classifiers, and joins with age limits have a controller. The
    current shares and the skipped windows survive restarts.
    """

    def __init__(self, task: Task, graph: QueryGraph, known: Mapping[str, Sequence[Any]]) -> None:
        boxes = {node: box for node in task.nodes if isinstance(box := graph[node].operator, Drop)}
        limits: dict[str, Drop | AgeLimit] = {
            member.name: member.limit
            for node in task.nodes
            if isinstance(join := graph[node].operator, SharedJoin)
            for member in join.members
            if member.limit is not None
        }
        self._controllers = {
            node: ShareController(limit.budget, limit.weight) for node, limit in (limits | boxes).items()
        }
        # Operators with a maximum lag, such as classifiers, keep all rows but evaluate fewer values.
        for node in task.nodes:
            operator = graph[node].operator
            if (lag_us := kind_of(operator).lag_us(operator)) is not None:
                self._controllers[node] = ShareController(LoadBudget(lag_us))
        self._joins = {
            node: _MeasuredJoin(join)
            for node in task.nodes
            if isinstance(join := graph[node].operator, SharedJoin)
            and any(member.limit is not None for member in join.members)
        }
        self._skippers = {
            node: WindowSkipper(box.range_us) for node, box in boxes.items() if box.range_us is not None
        }
        for node, (share, spans, next_us) in known.items():
            if node in self._controllers:
                self._controllers[node].share = share
            if node in self._skippers:
                self._skippers[node].spans = tuple((first, last) for first, last in spans)
                self._skippers[node].next_us = next_us

    @property
    def weight(self) -> float:
        """Return the mean weight of the queries that may shed rows, or 0 if no query may."""
        weights = [controller.weight for controller in self._controllers.values()]
        return sum(weights) / len(weights) if weights else 0.0

    def decide(
        self, epochs: Mapping[str, Sequence[Epoch]], state_bytes: int, backlog: Backlog, now: int
    ) -> dict[str, SheddingDecision]:
        """Map each operator that sheds rows to its decision for a run over the given epochs (commits)."""
        if not self._controllers:
            return {}
        pending = [epoch for new in epochs.values() for epoch in new if epoch.rows]
        if not pending:
            # Windows may end in a run without new rows, so the run must know the windows to skip.
            return {node: SheddingDecision(1.0, skipper.spans) for node, skipper in self._skippers.items()}
        rows = sum(epoch.rows for epoch in pending)
        waiting = WaitingLoad(
            waited_s=max(0, now - min(epoch.arrival_us for epoch in pending)) / SECOND_US,
            rows=rows,
            state_bytes=state_bytes,
            # This is the size of received rows. Derived rows in the task are at most as large.
            bytes_per_row=sum(epoch.bytes for epoch in pending) / rows,
            backlog=backlog,
        )
        first = min(epoch.min_ts for epoch in pending if epoch.min_ts is not None)
        decided = {}
        for node, controller in self._controllers.items():
            share = controller.decide(waiting)
            skipper = self._skippers.get(node)
            decided[node] = SheddingDecision(share, skipper.plan(share, first) if skipper is not None else ())
        for join in self._joins.values():
            decided |= join.reaches(decided)
        return decided

    def add(self, record: RunRecord) -> None:
        """Add the number of comparisons that each join made in a run."""
        for node, join in self._joins.items():
            join.add(record.compared.get(node, ()), record.rows)

    def plain(self) -> dict[str, list[Any]] | None:
        """Return the state of all controllers, to be stored in the journal.

        Return None if there are no controllers.
        """
        kept: dict[str, list[Any]] = {}
        for node, controller in self._controllers.items():
            skipper = self._skippers.get(node, _SKIPS_NOTHING)
            kept[node] = [controller.share, skipper.spans, skipper.next_us]
        return kept or None


class _MeasuredJoin:
    """Join with age limits, which counts comparisons by the age of rows."""

    def __init__(self, join: SharedJoin) -> None:
        self._ages = ComparisonsByAge(len(join.inputs))
        self._limited = [member.name for member in join.members if member.limit is not None]
        # Query -> window length of each input, or 0 for inputs that the query does not join.
        lengths = {
            member.name: [
                longest_us([member.window_of(name)]) if name in member.inputs else 0 for name in join.inputs
            ]
            for member in join.members
        }
        longest = [max(length or 1 for length in side) for side in zip(*lengths.values(), strict=True)]
        # Query -> window length of each input, relative to the longest window.
        # The table is empty if a window is defined by a row count, because rows then have no age.
        timed = all(length is not None for sides in lengths.values() for length in sides)
        self._windows = {
            name: [(length or 0) / most for length, most in zip(sides, longest, strict=True)]
            for name, sides in lengths.items()
            if timed
        }
        self._looked = 1.0

    def reaches(self, decided: Mapping[str, SheddingDecision]) -> dict[str, SheddingDecision]:
        """Map each query to its load shedding decision, completed by the maximum age of rows to compare."""
        found = {}
        for name in self._limited:
            share, windows = decided[name].share, self._windows.get(name)
            reach = share if windows is None else self._ages.reach(windows, share)
            found[name] = replace(decided[name], reach=reach)
        reached = [
            min(window * (found[name].reach if name in found else 1.0) for window in windows if window)
            for name, windows in self._windows.items()
        ]
        self._looked = max(reached, default=1.0)
        return found

    def add(self, subtasks: Sequence[Comparisons], rows: int) -> None:
        self._ages.add(subtasks, rows, self._looked)

"""Rebalancing: moves cells from busy workers to idle workers.

    look, every second ──► Balancer.decide ──► a cell is due to move ──► its unit is checkpointed
                                                                                   │
          the next run of the cell goes to the new worker, which restores ◄────────┘

A cell moves right after a checkpoint of its unit, so that the new worker has nothing to replay. A regular
move waits for the next regular checkpoint (S40). For an urgent move, the unit is checkpointed before its next
run (S41). A regular move becomes urgent if it waits too long, because a checkpoint waits for idle workers.

The assignment of cells is only in the memory of the driver. After a restart the driver creates a new one: all
cells must be restored anyway, and uneven loads are detected within seconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from slicemill.runtime.assignments import Assignments
from slicemill.runtime.streams import RunningStream
from slicemill.runtime.units import RunningUnit
from slicemill.scheduling.balance import Balancer, CellId, Move
from slicemill.time import SECOND_US

# Interval of load measurements.
_LOOK_US = 1 * SECOND_US
# A regular checkpoint is due after ten seconds, and then waits for idle workers. After this time a move is
# urgent.
_PATIENT_US = 15 * SECOND_US


class Rebalancer:
    """Rebalancer of a mill, with the moves that are due."""

    def __init__(self, assignments: Assignments, now_us: int) -> None:
        self.moved = 0
        self._assignments = assignments
        self._balancer = Balancer()
        self._due: dict[CellId, Move] = {}
        self._decided_us = now_us
        self._looked_us = now_us
        self._cells_s: dict[CellId, float] = {}  # at the last measurement
        self._reads_s: dict[str, float] = {}

    def look(self, units: Collection[RunningUnit], streams: Iterable[RunningStream], now_us: int) -> None:
        """Measure the load of all workers, and decide on a move."""
        elapsed_s = (now_us - self._looked_us) / SECOND_US
        if now_us - self._looked_us < _LOOK_US:
            return
        self._looked_us = now_us
        fixed = dict.fromkeys(self._assignments, 0.0)
        reads_s, self._reads_s = self._reads_s, {}
        for stream in streams:
            self._reads_s[stream.name] = stream.cpu_s
            if stream.loaded is not None and stream.loaded[0] in fixed:
                fixed[stream.loaded[0]] += (stream.cpu_s - reads_s.get(stream.name, stream.cpu_s)) / elapsed_s
        cells_s, self._cells_s = self._cells_s, {}
        at: dict[CellId, int] = {}
        loads: dict[CellId, float] = {}
        for unit in units:
            for cell, statistics in unit.statistics.cells.items():
                key = (unit.id, cell)
                self._cells_s[key] = statistics.cpu_s
                worker = self._assignments.pin_of(key)
                if worker is not None and key in cells_s:
                    at[key], loads[key] = worker, max(0.0, statistics.cpu_s - cells_s[key]) / elapsed_s
        if not self._due:
            move = self._balancer.decide(loads, at, fixed)
            self._decided_us = now_us
            if move is not None:
                self.request(move)
        elif now_us - self._decided_us >= _PATIENT_US:
            self._due = {cell: replace(move, at_once=True) for cell, move in self._due.items()}

    def request(self, move: Move) -> None:
        """Request the move of a cell after its unit's next checkpoint."""
        self._due[move.cell] = move

    def is_urgent(self, unit: RunningUnit) -> bool:
        """Return True if an urgent move requires a checkpoint of the unit."""
        return any(move.at_once for cell, move in self._due.items() if cell[0] == unit.id)

    def settle(self, unit: RunningUnit) -> None:
        """Move the due cells of a checkpointed unit, before its next run."""
        if not self._due or unit.dirty:
            return
        for key in [cell for cell in self._due if cell[0] == unit.id]:
            move = self._due.pop(key)
            if key[1] < unit.cells and self._assignments.move(key, move.worker):
                self.moved += 1

    def forget(self, gone: Collection[str]) -> None:
        """Cancel the moves of units that were removed or changed."""
        self._due = {cell: move for cell, move in self._due.items() if cell[0] not in gone}

"""Load balancing: moves cells from busy workers to idle ones (S39).

Loads are recent shares of a core. A move costs a checkpoint and a restore. So loads must be uneven for
some time before a cell is moved, and the effect of a move is awaited before the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# unit id and number of the cell
CellId: TypeAlias = tuple[str, int]

# permitted difference between workers, as a share of a core
_UNEVEN = 0.15
# consecutive uneven rounds before a move, and rounds during which a moved cell stays
_LOOKS, _REST = 3, 10
# Above this load a worker falls behind, so cells are moved at once.
_FULL = 0.8
# minimum part of the difference that a move must remove
_WORTH = 0.2


@dataclass(frozen=True, slots=True)
class Move:
    """Move of a cell to a worker.

    The cell moves with its next checkpoint, or `at_once` with an extra checkpoint.
    """

    cell: CellId
    worker: int
    at_once: bool


def best_move(
    loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
) -> Move | None:
    """Return the best move from the busiest to the idlest worker, or None.

    `fixed` has the load of each worker that cannot move, such as reading. All workers are keys of `fixed`.
    """
    if len(fixed) < 2:
        return None
    totals = dict(fixed)
    for cell, worker in at.items():
        totals[worker] += loads.get(cell, 0.0)
    idlest, busiest = min(totals, key=lambda w: (totals[w], w)), max(totals, key=lambda w: (totals[w], -w))
    gap = totals[busiest] - totals[idlest]
    if gap <= _UNEVEN:
        return None
    # The remaining difference. It is 0 for a cell with half of the current difference as load.
    left = {cell: abs(gap - 2 * loads.get(cell, 0.0)) for cell, worker in at.items() if worker == busiest}
    if not left:
        return None
    best = min(left, key=lambda cell: (left[cell], cell))
    return Move(best, idlest, totals[busiest] >= _FULL) if left[best] <= (1 - _WORTH) * gap else None


@dataclass(slots=True)
class Balancer:
    """Load balancer. `decide` is called at regular intervals."""

    _uneven: int = 0  # consecutive rounds
    _looks: int = 0
    _resting: dict[CellId, int] = field(default_factory=dict)  # until which round

    def decide(
        self, loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
    ) -> Move | None:
        """Return a move if loads have been uneven for long enough.

        Recently moved cells count as fixed load.
        """
        self._looks += 1
        self._resting = {cell: until for cell, until in self._resting.items() if until > self._looks}
        resting = dict(fixed)
        for cell in self._resting:
            if cell in at:
                resting[at[cell]] += loads.get(cell, 0.0)
        move = best_move(loads, {c: w for c, w in at.items() if c not in self._resting}, resting)
        self._uneven = 0 if move is None else self._uneven + 1
        if move is None or self._uneven < _LOOKS:
            return None
        self._uneven = 0
        self._resting[move.cell] = self._looks + _REST
        return move

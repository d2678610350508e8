"""Load balancing: moves cells from busy workers to idle workers (S39).

The load of a cell is its recent share of a core. A move costs a checkpoint and a restore. So a cell moves
only after loads have been uneven for several rounds, and then stays on its worker for several rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# (unit id, cell number)
CellId: TypeAlias = tuple[str, int]

# Permitted difference of load between two workers, as a share of a core.
_UNEVEN = 0.15
# Consecutive uneven rounds before a move, and rounds for which a moved cell stays on its worker.
_LOOKS, _REST = 3, 10
# A worker with a higher load falls behind, so its cells move at once.
_FULL = 0.8
# Minimum share of the difference that a move must remove.
_WORTH = 0.2


@dataclass(frozen=True, slots=True)
class Move:
    """Move of a cell to another worker.

    The cell moves after its next regular checkpoint, or after an extra checkpoint if `at_once` is set.
    """

    cell: CellId
    worker: int
    at_once: bool


def best_move(
    loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
) -> Move | None:
    """Return the best move from busiest to idlest worker, or None.

    `fixed` has, for every worker, the load that cannot move, such as the load of reading sources.
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
    # Difference after the move. It is 0 for a cell whose load is half of the current difference.
    left = {cell: abs(gap - 2 * loads.get(cell, 0.0)) for cell, worker in at.items() if worker == busiest}
    if not left:
        return None
    best = min(left, key=lambda cell: (left[cell], cell))
    return Move(best, idlest, totals[busiest] >= _FULL) if left[best] <= (1 - _WORTH) * gap else None


@dataclass(slots=True)
class Balancer:
    """Load balancer. `decide` is called at regular intervals."""

    _uneven: int = 0  # consecutive uneven rounds
    _looks: int = 0
    _resting: dict[CellId, int] = field(default_factory=dict)  # last round in which the cell stays

    def decide(
        self, loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
    ) -> Move | None:
        """Return a move if loads have been uneven for `_LOOKS` consecutive rounds.

        The load of a recently moved cell counts as fixed.
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

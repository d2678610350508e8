"""Balancing: which cell moves to which worker when some have much more to do than others (S39).

Loads are shares of a core, as measured of late. A move costs a checkpoint and a restore, so loads must be
uneven for some time before a cell moves, and each move is waited for before the next one is chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# A unit's id and the number of the cell.
CellId: TypeAlias = tuple[str, int]

# Workers may differ by so much of a core.
_UNEVEN = 0.15
# … for so many looks in a row; what has moved stays for some more.
_LOOKS, _REST = 3, 10
# Who is so busy does not keep up for long: cells leave it at once.
_FULL = 0.8
# Of the difference, what a move must even out.
_WORTH = 0.2


@dataclass(frozen=True, slots=True)
class Move:
    """Let a worker have a cell: with its next checkpoint, or `at_once`, which takes a checkpoint."""

    cell: CellId
    worker: int
    at_once: bool


def best_move(
    loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
) -> Move | None:
    """The cell of the busiest worker that fits best to the idlest; None where nothing is worth moving.

    `fixed` is what each worker does that cannot move, such as reading; all workers are in it.
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
    # What is left of the difference: that of a cell with half of it is nothing.
    left = {cell: abs(gap - 2 * loads.get(cell, 0.0)) for cell, worker in at.items() if worker == busiest}
    if not left:
        return None
    best = min(left, key=lambda cell: (left[cell], cell))
    return Move(best, idlest, totals[busiest] >= _FULL) if left[best] <= (1 - _WORTH) * gap else None


@dataclass(slots=True)
class Balancer:
    """Decides at regular looks; `decide` is called at each of them."""

    _uneven: int = 0  # looks in a row
    _looks: int = 0
    _resting: dict[CellId, int] = field(default_factory=dict)  # until which look

    def decide(
        self, loads: Mapping[CellId, float], at: Mapping[CellId, int], fixed: Mapping[int, float]
    ) -> Move | None:
        """A move, when loads have been uneven for long enough. A cell that has just moved counts as fixed."""
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

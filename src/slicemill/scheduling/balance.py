"""Load balancing: move subtasks (parallel instances of tasks) from busy workers to idle workers.

The load of a subtask is its recent share of a CPU core. A move costs a checkpoint and a restore of the state.
So a subtask moves only after loads have been uneven for several rounds, and then stays on its worker for
several rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# Task id, and number of the subtask in the task.
SubtaskId: TypeAlias = tuple[str, int]

# Permitted difference of load between two workers, as a share of a CPU core.
_UNEVEN = 0.15
# Number of consecutive uneven rounds before a move, and of rounds for which a moved subtask stays.
_LOOKS, _REST = 3, 10
# Load above which a worker falls behind, so that its subtasks move at once.
_FULL = 0.8
# Minimum share of the load difference between two workers that a move must remove.
_WORTH = 0.2


@dataclass(frozen=True, slots=True)
class Move:
    """Move of a subtask to another worker.

    The subtask moves after its next regular checkpoint, or after an extra checkpoint if `at_once` is set.
    """

    subtask: SubtaskId
    worker: int
    at_once: bool


def best_move(
    loads: Mapping[SubtaskId, float], at: Mapping[SubtaskId, int], fixed: Mapping[int, float]
) -> Move | None:
    """Return the best move of a subtask from the busiest to the idlest worker, or None.

    `fixed` has, for every worker, the load that cannot move, such as the load of reading sources.
    """
    if len(fixed) < 2:
        return None
    totals = dict(fixed)
    for subtask, worker in at.items():
        totals[worker] += loads.get(subtask, 0.0)
    idlest, busiest = min(totals, key=lambda w: (totals[w], w)), max(totals, key=lambda w: (totals[w], -w))
    gap = totals[busiest] - totals[idlest]
    if gap <= _UNEVEN:
        return None
    # Load difference of both workers after the move of each subtask of the busiest worker.
    left = {
        subtask: abs(gap - 2 * loads.get(subtask, 0.0)) for subtask, worker in at.items() if worker == busiest
    }
    if not left:
        return None
    best = min(left, key=lambda subtask: (left[subtask], subtask))
    return Move(best, idlest, totals[busiest] >= _FULL) if left[best] <= (1 - _WORTH) * gap else None


@dataclass(slots=True)
class Balancer:
    """Load balancer between workers. The driver calls `decide` at regular intervals."""

    _uneven: int = 0  # number of consecutive rounds with uneven loads
    _looks: int = 0
    _resting: dict[SubtaskId, int] = field(default_factory=dict)  # last round in which a moved subtask stays

    def decide(
        self, loads: Mapping[SubtaskId, float], at: Mapping[SubtaskId, int], fixed: Mapping[int, float]
    ) -> Move | None:
        """Return a move if the loads of the workers have been uneven for `_LOOKS` rounds in a row.

        The load of a recently moved subtask counts as fixed.
        """
        self._looks += 1
        self._resting = {subtask: until for subtask, until in self._resting.items() if until > self._looks}
        resting = dict(fixed)
        for subtask in self._resting:
            if subtask in at:
                resting[at[subtask]] += loads.get(subtask, 0.0)
        move = best_move(loads, {c: w for c, w in at.items() if c not in self._resting}, resting)
        self._uneven = 0 if move is None else self._uneven + 1
        if move is None or self._uneven < _LOOKS:
            return None
        self._uneven = 0
        self._resting[move.subtask] = self._looks + _REST
        return move

"""How features move: a discrete Markov chain for each, learnt by counting (M50).

`K[i, j] = n[i, j] / Σ_l n[i, l]` over the transitions seen. With a `window`, those are the last so many of
each feature: a ring holds them so that the oldest can be taken back. From a bin that nothing was seen to
leave, a feature is taken to stay where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from slicemill.machine_code.kernel import kernel
from slicemill.shedding.classify.arrays import Bools, Floats, Ints
from slicemill.storage.codec import stored_as


@stored_as("classify.chains", version=1)
@dataclass(slots=True)
class Chains:
    """The chains of n tasks with k features; `counts` is (n, k, M, M)."""

    counts: Ints
    window: int | None = None
    _ring: Ints | None = None
    _added: Ints | None = None
    _matrices: Floats = field(init=False)

    def __post_init__(self) -> None:
        tasks, features, bins, _ = self.counts.shape
        if self.window is not None:
            self._ring = np.full((tasks, features, self.window), -1, np.int64)
            self._added = np.zeros((tasks, features), np.int64)
        self._matrices = np.empty((tasks, features, bins, bins))
        _renew(self.counts, np.ones((tasks, features), np.bool_), self._matrices)

    @property
    def matrices(self) -> Floats:
        """The transition matrices K: (n, k, M, M)."""
        return self._matrices

    def learn(self, before: Ints, after: Ints, seen: Bools) -> None:
        """Count the transitions of one time unit: (n, k) bins before and after, where both were seen."""
        _count(self.counts, before, after, seen, self._ring, self._added)
        _renew(self.counts, seen, self._matrices)

    def predict(self, p: Floats) -> Floats:
        """Distributions (n, k, M), one time unit later: p·K."""
        return _predict(p, self._matrices)

    def shares(self) -> Floats:
        """How often each feature was in each bin (n, k, M): all that is known before anything is seen."""
        visits = self.counts.sum(axis=-1)
        total = visits.sum(axis=-1, keepdims=True)
        return np.asarray(np.where(total > 0, visits / np.maximum(total, 1), 1.0 / visits.shape[-1]))

    def movement_variance(self) -> Floats:
        """The variance of one move of each feature, over the transitions counted (M55).

        In bins, not in the feature's own unit: metres must not move more than kilometres.
        """
        numbers = np.arange(self.counts.shape[-1])
        moves = numbers[np.newaxis, :] - numbers[:, np.newaxis]
        total = np.maximum(self.counts.sum(axis=(-2, -1)), 1)
        mean = (self.counts * moves).sum(axis=(-2, -1)) / total
        square = (self.counts * moves**2).sum(axis=(-2, -1)) / total
        return np.asarray(np.maximum(square - mean**2, 0.0))


def chains(bins: Ints, count: int, window: int | None = None, moves: Bools | None = None) -> Chains:
    """Chains learnt from histories: bins are (time, n, k), each row one time unit after the one before.

    `moves` has the same shape: whether a bin can be seen as a move from the one before; None: all can.

    >>> K = chains(np.array([0, 0, 1, 0, 1]).reshape(-1, 1, 1), 2).matrices[0, 0]
    >>> K.round(3).tolist()
    [[0.333, 0.667], [1.0, 0.0]]
    """
    _, tasks, features = bins.shape
    made = Chains(np.zeros((tasks, features, count, count), np.int64), window)
    for at in range(1, len(bins)):
        seen = np.ones((tasks, features), np.bool_) if moves is None else moves[at]
        _count(made.counts, bins[at - 1], bins[at], seen, made._ring, made._added)
    _renew(made.counts, np.ones((tasks, features), np.bool_), made._matrices)
    return made


@kernel
def _count(
    counts: Ints, before: Ints, after: Ints, seen: Bools, ring: Ints | None, added: Ints | None
) -> None:
    bins = counts.shape[2]
    for t in range(seen.shape[0]):
        for f in range(seen.shape[1]):
            if not seen[t, f]:
                continue
            counts[t, f, before[t, f], after[t, f]] += 1
            if ring is not None and added is not None:
                place = added[t, f] % ring.shape[2]
                oldest = ring[t, f, place]
                if oldest >= 0:
                    counts[t, f, oldest // bins, oldest % bins] -= 1
                ring[t, f, place] = before[t, f] * bins + after[t, f]
                added[t, f] += 1


@kernel
def _renew(counts: Ints, changed: Bools, matrices: Floats) -> None:
    bins = counts.shape[2]
    for t in range(changed.shape[0]):
        for f in range(changed.shape[1]):
            if not changed[t, f]:
                continue
            for i in range(bins):
                total = counts[t, f, i].sum()
                for j in range(bins):
                    if total > 0:
                        matrices[t, f, i, j] = counts[t, f, i, j] / total
                    else:
                        matrices[t, f, i, j] = 1.0 if i == j else 0.0


@kernel
def _predict(p: Floats, matrices: Floats) -> Floats:
    after = np.zeros_like(p)
    for t in range(p.shape[0]):
        for f in range(p.shape[1]):
            for i in range(p.shape[2]):
                mass = p[t, f, i]
                if mass > 0.0:
                    for j in range(p.shape[2]):
                        after[t, f, j] += mass * matrices[t, f, i, j]
    return after

"""Continuous values as a finite number of bins, so that they can be the states of a Markov chain (M50)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slicemill.shedding.classify.arrays import Floats, Ints
from slicemill.storage.codec import stored_as


@stored_as("classify.bins", version=1)
@dataclass(frozen=True, slots=True)
class Bins:
    """`count` bins of equal width per feature, from `low` on; both are (n, k). What lies outside is in the
    first or the last bin.

    >>> bins = Bins(np.array([[0.0]]), np.array([[0.5]]), 2)
    >>> bins.of(np.array([[0.6]])).tolist(), bins.centres().tolist()
    ([[1]], [[[0.25, 0.75]]])
    """

    low: Floats
    width: Floats
    count: int

    def of(self, values: Floats) -> Ints:
        """The bin of each value (…, n, k). NaN has none and gets the first."""
        places = np.floor((values - self.low) / self.width)
        return np.where(places > 0, np.minimum(places, self.count - 1), 0).astype(np.int64)

    def centres(self) -> Floats:
        """The middle of each bin: (n, k, M)."""
        steps = np.arange(self.count) + 0.5
        return np.asarray(self.low[..., np.newaxis] + self.width[..., np.newaxis] * steps, np.float64)


def bins_between(low: Floats, high: Floats, count: int) -> Bins:
    """Bins from the lowest to the highest value of each feature; one that never moves has a width as well."""
    return Bins(low, np.where(high > low, high - low, 1.0) / count, count)

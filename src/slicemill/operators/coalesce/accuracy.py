"""Accuracy of what remains of runs, as columns (L13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from slicemill.columns.intervals import Mask, Places
from slicemill.shedding.accuracy import AccuracySums


class RunPieces(NamedTuple):
    """Runs or their remainders, as columns."""

    runs: Places
    partitions: Places
    codes: Places
    begins: Places
    ends: Places

    def take(self, chosen: Mask | Places) -> RunPieces:
        return RunPieces(*(column[chosen] for column in self))

    def put_together(self) -> RunPieces:
        """Merge adjacent pieces of one run, ordered by partition and time."""
        here = self.take(np.lexsort((self.begins, self.partitions)))
        if not len(here.runs):
            return here
        begun = np.ones(len(here.runs), np.bool_)
        begun[1:] = (here.runs[1:] != here.runs[:-1]) | (here.begins[1:] != here.ends[:-1])
        firsts = np.flatnonzero(begun)
        lasts = np.append(firsts[1:], len(begun)) - 1
        return here.take(firsts)._replace(ends=here.ends[lasts])


def sums(exact: RunPieces, left: RunPieces, wanted: Callable[[RunPieces], RunPieces]) -> AccuracySums:
    """Return the accuracy sums over the wanted runs and fragments."""
    exact, left = wanted(exact), wanted(left)
    order = np.argsort(exact.runs)
    runs: Any = exact.runs[order]
    place = np.searchsorted(runs, left.runs)
    known = (place < len(runs)) & (np.append(runs, -1)[np.minimum(place, len(runs))] == left.runs)
    lengths = np.bincount(place[known], (left.ends - left.begins)[known], len(runs))
    counts = np.bincount(place[known], minlength=len(runs))
    shares = lengths / (exact.ends - exact.begins)[order]
    return AccuracySums(float(shares.sum()), int(np.maximum(counts, 1).sum() + (~known).sum()))

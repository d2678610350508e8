"""Which streams BFF need not weigh, by what it found of late (M54).

What was found in a window of time units sets the threshold for the next: the 20th percentile of the Q above
zero. Then two kinds of streams are passed over: all of a task whose observational risk is under the
threshold, and those whose Q was under it throughout the window, as long as their task's risk stays about the
same. That makes the usual time unit cheaper, not the worst.
"""

from __future__ import annotations

import numpy as np

from slicemill.shedding.classify.arrays import Bools, Floats
from slicemill.storage.codec import stored_as

_PERCENTILE = 20
_SAME = 0.1


@stored_as(
    "classify.pruning",
    version=1,
    fields=("_window", "_threshold", "_seen", "_best", "_risks", "_low", "_usual"),
)
class Pruning:
    """`window` is in time units."""

    def __init__(self, window: int = 20) -> None:
        self._window = window
        self._threshold = 0.0
        self._seen: list[Floats] = []
        self._best: Floats | None = None  # the greatest Q of each stream in this window
        self._risks: list[Floats] = []
        self._low: Bools | None = None  # streams under the threshold throughout the last window
        self._usual: Floats | None = None  # observational risk of each task in the last window

    def candidates(self, observational_risk: Floats, present: Bools) -> Bools:
        """The streams to weigh, given the tasks' observational risk now."""
        self._risks.append(observational_risk)
        kept = present & (observational_risk >= self._threshold)[:, np.newaxis]
        if self._low is not None and self._usual is not None:
            same = np.abs(observational_risk - self._usual) <= _SAME * self._usual
            kept &= ~(self._low & same[:, np.newaxis])
        return np.asarray(kept)

    def note(self, quality: Floats, weighed: Bools) -> None:
        """Take note of the Q that were computed."""
        known = np.where(weighed, quality, -np.inf)
        self._best = known if self._best is None else np.maximum(self._best, known)
        self._seen.append(quality[weighed & (quality > 0)])
        if len(self._seen) == self._window:
            self._next_window()

    def _next_window(self) -> None:
        seen = np.concatenate(self._seen)
        if len(seen):
            self._threshold = float(np.percentile(seen, _PERCENTILE))
        assert self._best is not None
        # A stream that was not weighed at all stays as it was judged.
        never = np.isneginf(self._best)
        before = np.zeros_like(never) if self._low is None else self._low
        self._low = np.where(never, before, self._best < self._threshold)
        self._usual = np.mean(self._risks, axis=0)
        self._seen, self._risks, self._best = [], [], None

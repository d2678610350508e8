"""Shedding methods, by the names that queries use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

_MASK = 2**64 - 1


class TieBreak(StrEnum):
    """Choice among tuples with equal cost."""

    RANDOM = "random"
    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Method:
    """Cost of dropping a tuple.

    - `split`: cost of each additional result, when a run is split
    - `lost`: cost of lost time, as a share of the run
    - `lookahead`: a run that continues with the newest tuple has no end yet, so its last tuple is an inner
      tuple (L21)
    - `threshold`: results of shorter runs are not wanted (L23)
    - `blind`: victims are random
    - `original`: lost time is a share of the original run instead of its remainder (L15)
    """

    split: float = 1.0
    lost: float = 1.0
    lookahead: bool = True
    threshold: int | None = None
    blind: bool = False
    original: bool = False
    ties: TieBreak = TieBreak.RANDOM
    seed: int = 1

    def tie(self, number: int) -> int:
        """Return the rank among tuples with equal cost. The lowest is dropped."""
        if self.ties is TieBreak.RANDOM:
            return splitmix64(number, self.seed)
        return number if self.ties is TieBreak.OLDEST else -number


METHODS = {
    "cals": Method(lookahead=False),
    "value": Method(lost=0.0),
    "interval": Method(split=0.0),
    "lookahead": Method(),
    "threshold": Method(threshold=0),
    "exact": Method(original=True),
    "random": Method(blind=True),
}
"""Methods by name (L15-L23).

`cals` is CALS as published. `value` counts only results, and `interval` only lost time. `lookahead` is CALS
with look-ahead, `threshold` with the query's minimum duration, and `exact` with original runs. `random` is
RAND.
"""


def method_of(
    name: str, threshold: int | None = None, seed: int = 1, weights: tuple[float, float] | None = None
) -> Method:
    """Return the method with this name.

    `weights` are the costs of an additional result and of lost time (L17).
    """
    method = METHODS[name]
    if weights is not None:
        method = replace(method, split=weights[0], lost=weights[1])
    return replace(method, seed=seed, threshold=None if method.threshold is None else threshold)


def splitmix64(number: int, seed: int) -> int:
    """Return a pseudo-random 64-bit number (splitmix64).

    The number is the same in every process, so that a replay drops the same tuples.
    """
    mixed = (number + seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)

"""Shedding methods: the cost of dropping a tuple under each method that queries can name."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

_MASK = 2**64 - 1


class TieBreak(StrEnum):
    """Rule that chooses which of several tuples with equal cost is dropped."""

    RANDOM = "random"
    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Method:
    """Shedding method: weights and options that determine the cost of dropping a tuple.

    A run of equal values is a sequence of adjacent tuples, which becomes one result row.

    - `split`: cost of each additional result row, if dropping a tuple splits a run
    - `lost`: cost of losing the whole time of a run
    - `lookahead`: a run that the newest tuple extends has no end yet, so its last tuple is an inner tuple
      (L21)
    - `threshold`: minimum length of a run, because the query ignores shorter results (L23)
    - `blind`: dropped tuples are chosen at random
    - `original`: lost time is a share of the run before load shedding, not of its remainder (L15)
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
        """Return the rank of a tuple among tuples of equal cost. The lowest rank is dropped first."""
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
"""Shedding methods by name (L15-L23).

`cals` drops the tuple with the least cost (CALS as published). In `value` only additional results have a
cost, and in `interval` only lost time. `lookahead` is CALS with look-ahead, `threshold` is CALS with the
minimum duration of the query, and `exact` is CALS with costs relative to runs before load shedding. `random`
drops a random tuple (RAND).
"""


def method_of(
    name: str, threshold: int | None = None, seed: int = 1, weights: tuple[float, float] | None = None
) -> Method:
    """Return the shedding method with a given name.

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

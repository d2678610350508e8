"""The ways of choosing what to drop, by the names that queries call them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

_MASK = 2**64 - 1


class Ties(StrEnum):
    """Which of several tuples that cost the same goes."""

    RANDOM = "random"
    OLDEST = "oldest"
    NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Method:
    """What a dropped tuple is taken to cost: `split` for a result too many, `lost` for time that is lost.

    `lookahead`: a run that the newest tuple goes on with has no end yet, so its last tuple is an inner one
    (L21). `threshold`: runs shorter than this are not wanted at all (L23). Without any cost (`blind`) a tuple
    is drawn at random. `original`: time is lost as a share of the run as it was, not of what is left (L15).
    """

    split: float = 1.0
    lost: float = 1.0
    lookahead: bool = True
    threshold: int | None = None
    blind: bool = False
    original: bool = False
    ties: Ties = Ties.RANDOM
    seed: int = 1

    def tie(self, number: int) -> int:
        """Where the tuple of this number stands among those that cost the same: the least goes."""
        if self.ties is Ties.RANDOM:
            return scattered(number, self.seed)
        return number if self.ties is Ties.OLDEST else -number


METHODS = {
    "cals": Method(lookahead=False),
    "value": Method(lost=0.0),
    "interval": Method(split=0.0),
    "lookahead": Method(),
    "threshold": Method(threshold=0),
    "exact": Method(original=True),
    "random": Method(blind=True),
}
"""CALS as it was printed, counting only results or only time, with look-ahead, knowing the query's least
duration or runs as they were, and RAND (L15-L23)."""


def method_of(
    name: str, threshold: int | None = None, seed: int = 1, weights: tuple[float, float] | None = None
) -> Method:
    """The method of a name; `weights` are those of a result too many and of lost time (L17)."""
    method = METHODS[name]
    if weights is not None:
        method = replace(method, split=weights[0], lost=weights[1])
    return replace(method, seed=seed, threshold=None if method.threshold is None else threshold)


def scattered(number: int, seed: int) -> int:
    """A number as random as it gets, the same in every process: replays drop the same tuples (splitmix64)."""
    mixed = (number + seed * 0x9E3779B97F4A7C15 + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)

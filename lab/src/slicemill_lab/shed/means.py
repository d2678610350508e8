"""Means for shed-E3 and shed-E4: CALS, its two parts and RAND, over memory ratios and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slicemill_lab.claims import Claim, at_least, at_most
from slicemill_lab.experiment import Scale
from slicemill_lab.shed.runs import RATIOS, mean, table

WAYS = ("CALS", "CALS as printed", "CALS-V", "CALS-I", "RAND")


@dataclass(frozen=True, slots=True)
class Means:
    """Accuracy by method: a mean over ratios per stream, and a mean over streams per ratio."""

    over_ratios: Mapping[str, Sequence[float]]
    over_streams: Mapping[str, Sequence[float]]

    def both(self, name: str) -> list[float]:
        return [*self.over_ratios[name], *self.over_streams[name]]

    def least_lead(self, name: str, others: Sequence[str]) -> float:
        """Return the least lead of a method over the best of the others. It may be negative."""
        rivals = [self.both(other) for other in others]
        best: list[float] = [max(values) for values in zip(*rivals, strict=True)]
        return min(a - b for a, b in zip(self.both(name), best, strict=True))


def means(probabilities: Sequence[float], scale: Scale, seed: int) -> Means:
    over_ratios, over_streams = {}, {}
    for name in WAYS:
        cells = list(table(name, probabilities, scale, seed).values())
        over_ratios[name] = [mean(line) for line in cells]
        over_streams[name] = [mean([line[place] for line in cells]) for place in range(len(RATIOS))]
    return Means(over_ratios, over_streams)


def common_claims(found: Means) -> tuple[Claim, ...]:
    apart = [
        abs(a - b) for a, b in zip(found.over_streams["CALS-V"], found.over_streams["CALS-I"], strict=True)
    ]
    return (
        at_least(
            "CALS is the upper bound: least lead over V, I and RAND",
            found.least_lead("CALS", ("CALS-V", "CALS-I", "RAND")),
            -0.01,
        ),
        at_least(
            "RAND is the lower bound: least lead of V and of I over it",
            min(found.least_lead(name, ("RAND",)) for name in ("CALS-V", "CALS-I")),
            -0.03,
            note="Printed: below all. In the prototype V is up to 0.02 below RAND at middle p.",
        ),
        at_most("V and I are close to each other at every ratio: greatest difference", max(apart), 0.08),
    )

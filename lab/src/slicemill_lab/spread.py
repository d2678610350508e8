"""Claims over several seeds: what is printed is the mean, and the note says how far the seeds lie apart.

Percentages that were published for a packet trace are said in the note; the claim is the order or the sign,
or a bound that the experiment names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from slicemill_lab.claims import Claim, ascending

SEEDS = 5


def seeds(seed: int) -> range:
    """The seeds of one experiment."""
    return range(seed, seed + SEEDS)


def lower(
    what: str, ours: Sequence[float], theirs: Sequence[float], *, least: float = 0.0, published: str = ""
) -> Claim:
    """The claim that a figure lies below another by more than the part `least` of it, seed by seed."""
    below = [1 - own / other for own, other in zip(ours, theirs, strict=True)]
    printed = f"published: {published}; " if published else ""
    return Claim(
        f"{what} by",
        f"> {least:g}",
        fmean(below),
        fmean(below) > least,
        f"{printed}{min(below):.0%} to {max(below):.0%} over {len(below)} seeds",
    )


def ordered(what: str, samples: Mapping[str, Sequence[float]], note: str = "") -> Claim:
    """The claim that the means of the named figures are in strictly ascending order, as listed."""
    agree = sum(all(a < b for a, b in pairwise(row)) for row in zip(*samples.values(), strict=True))
    count = len(next(iter(samples.values())))
    said = f"{note}; " if note else ""
    means = {name: fmean(values) for name, values in samples.items()}
    return ascending(what, means, f"{said}the same order in {agree} of {count} seeds")


def lowest(what: str, own: str, samples: Mapping[str, Sequence[float]], note: str = "") -> Claim:
    """The claim that the figure of one has the lowest mean of all."""
    means = {name: fmean(values) for name, values in samples.items()}
    best = min(means, key=lambda name: means[name])
    rows = [dict(zip(samples, row, strict=True)) for row in zip(*samples.values(), strict=True)]
    agree = sum(row[own] == min(row.values()) for row in rows)
    said = f"{note}; " if note else ""
    return Claim(what, own, best, best == own, f"{said}lowest in {agree} of {len(rows)} seeds")

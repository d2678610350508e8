"""Claims over several seeds: compare means, and note the spread.

A claim is an order or a sign. The size of a published difference is not claimed, but measured and compared
with the publication by one rule (`published.figure`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import fmean

from slicemill_lab.claims import Claim, ascending

SEEDS = 5


_count = SEEDS


def seeds(seed: int) -> range:
    """Return the seeds of an experiment."""
    return range(seed, seed + _count)


@contextmanager
def fewer_seeds(count: int) -> Iterator[None]:
    """Limit the number of seeds, for experiments that take long. The notes of claims report the number."""
    global _count
    before, _count = _count, min(count, SEEDS)
    try:
        yield
    finally:
        _count = before


def lower(what: str, ours: Sequence[float], theirs: Sequence[float], note: str = "") -> Claim:
    """Claim that a figure is lower than another, by the mean of the relative differences per seed."""
    below = [1 - own / other for own, other in zip(ours, theirs, strict=True)]
    said = f"{note}; " if note else ""
    return Claim(
        f"{what} by",
        "> 0",
        fmean(below),
        fmean(below) > 0,
        f"{said}{min(below):.0%} to {max(below):.0%} over {len(below)} seeds",
    )


def ordered(what: str, samples: Mapping[str, Sequence[float]], note: str = "") -> Claim:
    """Claim that the means of the named figures are in strictly ascending order, as listed."""
    agree = sum(all(a < b for a, b in pairwise(row)) for row in zip(*samples.values(), strict=True))
    count = len(next(iter(samples.values())))
    said = f"{note}; " if note else ""
    means = {name: fmean(values) for name, values in samples.items()}
    return ascending(what, means, f"{said}the same order in {agree} of {count} seeds")


def lowest(what: str, own: str, samples: Mapping[str, Sequence[float]], note: str = "") -> Claim:
    """Claim that the named figure has the lowest mean."""
    means = {name: fmean(values) for name, values in samples.items()}
    best = min(means, key=lambda name: means[name])
    rows = [dict(zip(samples, row, strict=True)) for row in zip(*samples.values(), strict=True)]
    agree = sum(row[own] == min(row.values()) for row in rows)
    said = f"{note}; " if note else ""
    return Claim(what, own, best, best == own, f"{said}lowest in {agree} of {len(rows)} seeds")

"""Where slices that are data should be cut: the chain of least cost for whole sets of tuples (S3, S17-S20).

Operators that pass tuples on one by one pay for purging, routing and a union at every cut. Slices that are
files pay for none of these: a probe looks up its key only, the age of a pair finds its queries in a table,
and files go as a whole. What a cut costs there is that the tuples which come to it are gone through, and
those that pass written anew: `rewriting` comparisons each (Csys). What it saves are the tuples that no query
wants beyond it: they are neither kept nor compared. So cuts pay where selections end; without selections
there are none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slicemill.operators.join.slices.optimise import Ends, shortest_path


@dataclass(frozen=True, slots=True)
class SetWiseStream:
    """What is known of one side of a join.

    `ending`: for each window the share of tuples that some query wants up to there, and none beyond.
    `compared`: how often a tuple is compared in a second that it is kept. `rewriting`: what a cut costs for
    each tuple that comes to it, in comparisons.
    """

    ending: Mapping[float, float]
    compared: float
    rewriting: float

    @property
    def windows(self) -> Ends:
        return tuple(sorted(self.ending))

    def beyond(self, age: float) -> float:
        """The share of tuples that some query wants at this age."""
        return sum(share for window, share in self.ending.items() if window > age)


def finest_cuts(stream: SetWiseStream) -> Ends:
    """Mem-Opt: nothing is kept longer than somebody wants it."""
    return stream.windows


def cheapest_cuts(stream: SetWiseStream, keeping: float = 0.0) -> Ends:
    """The cuts of least cost, where to keep a tuple for a second costs `keeping` comparisons.

    At 0 that is CPU-Opt.

    >>> cheapest_cuts(SetWiseStream({10: 0.9, 60: 0.1}, compared=1, rewriting=5))
    (10, 60)
    >>> cheapest_cuts(SetWiseStream({10: 0.1, 60: 0.9}, compared=1, rewriting=50))
    (60,)
    """
    windows = stream.windows
    there = {age: stream.beyond(age) for age in (0, *windows)}

    def length(start: float, end: float) -> float:
        cut = stream.rewriting * there[start] if end < windows[-1] else 0.0
        return (stream.compared + keeping) * there[start] * (end - start) + cut

    return shortest_path(windows, length)


def fair_price(stream: SetWiseStream) -> float:
    """A price of keeping: a cut is worth it that frees an eighth of the tuples for all of the window.

    Slices are about an eighth of the window long: what would be saved beyond that is lost in their ends.
    """
    return 8 * stream.rewriting / stream.windows[-1]


def tuple_seconds(stream: SetWiseStream, ends: Ends) -> float:
    """For how long a tuple is kept in the mean; times the rate, that is the state."""
    return sum(
        stream.beyond(start) * (end - start) for start, end in zip((0.0, *ends[:-1]), ends, strict=True)
    )

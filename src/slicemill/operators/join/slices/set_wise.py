"""Cuts of least cost for slices that are files (S3, S17-S20).

Operators that process row by row pay for purging, routing and a union at every cut. Slices that are files
have none of these costs: a probe looks up its key only, a table maps the age of a pair to its queries, and
files are dropped whole. At a cut, the rows that reach it are scanned, and those that pass are rewritten, at
`rewriting` comparisons each (Csys). A cut saves the rows that no query selects beyond the cut: such rows are
neither stored nor compared any more. Cuts therefore pay off only where selections end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slicemill.operators.join.slices.optimise import Ends, shortest_path


@dataclass(frozen=True, slots=True)
class SetWiseStream:
    """Statistics of one side of a join.

    `ending` has for each window the share of rows whose longest selecting window this is. `compared` is how
    often a stored row is compared per second. `rewriting` is the cost of a cut for each row that reaches it,
    in comparisons.
    """

    ending: Mapping[float, float]
    compared: float
    rewriting: float

    @property
    def windows(self) -> Ends:
        return tuple(sorted(self.ending))

    def beyond(self, age: float) -> float:
        """Return the share of rows that some query needs at this age."""
        return sum(share for window, share in self.ending.items() if window > age)


def finest_cuts(stream: SetWiseStream) -> Ends:
    """Return the Mem-Opt cuts.

    No row is then kept longer than a query needs the row.
    """
    return stream.windows


def cheapest_cuts(stream: SetWiseStream, keeping: float = 0.0) -> Ends:
    """Return the cuts of least cost.

    Storing a row for a second costs `keeping` comparisons; 0 gives CPU-Opt.

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
    """Return the price of keeping a row, used to choose cuts.

    At this price a cut pays off if it evicts an eighth of the rows for the whole window. Slices are about an
    eighth of the window long, so that smaller savings would be lost at their ends.
    """
    return 8 * stream.rewriting / stream.windows[-1]


def tuple_seconds(stream: SetWiseStream, ends: Ends) -> float:
    """Return how long a row is kept on average.

    Multiplied by the rate this is the state.
    """
    return sum(
        stream.beyond(start) * (end - start) for start, end in zip((0.0, *ends[:-1]), ends, strict=True)
    )

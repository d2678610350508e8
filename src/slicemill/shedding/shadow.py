"""What the exact result would have been, as far as accuracy needs it (L25).

Of every run, before anything was dropped, its beginning and end are kept, also when all its tuples are gone.
That is enough to tell the accuracy of what is left: exactly, but for the oldest run of a partition, where
the tuple with which the window begins may have been dropped. Where runs are many, a sample of them is kept,
drawn by their numbers: accuracy is then that of the sampled ones.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from slicemill.shedding.chains import Tuple, Values
from slicemill.shedding.methods import scattered

LIMIT = 1024
_SEED = 0x5AD0


@dataclass(slots=True)
class Original:
    """A run as it came. `last_begin` and `last_number` are its last tuple's, `lost_begin` and `lost_number`
    those of the newest one that was dropped."""

    partition: Hashable
    values: Values
    begin: int
    end: int
    last_begin: int
    first_number: int
    last_number: int
    lost_begin: int = -(2**63)
    lost_number: int = -1


@dataclass(slots=True)
class Shadow:
    """`limit` bounds the runs that are kept: of more, every second one is let go, again and again."""

    limit: int = LIMIT
    runs: dict[int, Original] = field(default_factory=dict)
    halvings: int = 0

    def saw(self, tuple_: Tuple, partition: Hashable) -> None:
        """A tuple has got its end; its run goes on, or begins with it."""
        known = self.runs.get(tuple_.run)
        if known is not None:
            known.end, known.last_begin, known.last_number = tuple_.end, tuple_.begin, tuple_.number
        elif self.samples(tuple_.run):
            begin, number = tuple_.begin, tuple_.number
            self.runs[tuple_.run] = Original(
                partition, tuple_.values, begin, tuple_.end, begin, number, number
            )
            while len(self.runs) > self.limit:
                self.halvings += 1
                self.runs = {run: original for run, original in self.runs.items() if self.samples(run)}

    def lost(self, dropped: Tuple) -> None:
        known = self.runs.get(dropped.run)
        if known is not None:
            last = dropped.begin if dropped.count == 1 else dropped.end - 1
            known.lost_begin = max(known.lost_begin, last)
            known.lost_number = max(known.lost_number, dropped.number)

    def expire(self, gone: Iterable[int]) -> None:
        """Runs that no window reaches any more."""
        for run in gone:
            del self.runs[run]
        if not self.runs:
            self.halvings = 0

    @property
    def share(self) -> float:
        """The share of runs that is looked at."""
        return 0.5**self.halvings

    def samples(self, run: int) -> bool:
        """Is this one of the runs that are looked at?"""
        return scattered(run, _SEED) & ((1 << self.halvings) - 1) == 0

"""What the exact result would have been, as far as accuracy needs it (L25).

Of every run, before anything was dropped, its beginning and end are kept, also when all its tuples are gone.
That is enough to tell the accuracy of what is left: exactly, but for the oldest run of a partition, where
the tuple with which the window begins may have been dropped. Where runs are many, a sample of them is kept,
drawn by their numbers: accuracy is then that of the sampled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from slicemill.shedding.chains import Tuple, Values
from slicemill.shedding.methods import scattered
from slicemill.storage.codec import stored_as

LIMIT = 1024
_LEAST = 64
ORIGINAL_BYTES = 400  # of a run that is remembered as an object
SEED = 0x5AD0


def runs_remembered(capacity: int) -> int:
    """How many runs are remembered beside a memory of so many tuples: what it costs to tell the accuracy.

    >>> [runs_remembered(capacity) for capacity in (10, 2_500, 100_000)]
    [64, 312, 1024]
    """
    return min(LIMIT, max(_LEAST, capacity // 8))


@stored_as("shed.original", version=1)
@dataclass(slots=True)
class Original:
    """A run as it came. `last_begin` and `last_number` are its last tuple's, `lost_begin` that of the newest
    one that was dropped."""

    values: Values
    begin: int
    end: int
    last_begin: int
    first_number: int
    last_number: int
    lost_begin: int = -(2**63)


@stored_as("shed.shadow", version=1)
@dataclass(slots=True)
class Shadow:
    """Runs by partition. `limit` bounds them: of more, every second one is let go, again and again."""

    limit: int = LIMIT
    halvings: int = 0
    _count: int = 0
    _partitions: dict[Hashable, dict[int, Original]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._count

    def saw(self, tuple_: Tuple, partition: Hashable) -> None:
        """A tuple has got its end; its run goes on, or begins with it."""
        runs = self._partitions.setdefault(partition, {})
        known = runs.get(tuple_.run)
        if known is not None:
            known.end, known.last_begin, known.last_number = tuple_.end, tuple_.begin, tuple_.number
        elif self.samples(tuple_.run):
            begin, number = tuple_.begin, tuple_.number
            runs[tuple_.run] = Original(tuple_.values, begin, tuple_.end, begin, number, number)
            self._count += 1
            while self._count > self.limit:
                self.halvings += 1
                self._keep(lambda _, run, __: self.samples(run))

    def lost(self, dropped: Tuple, partition: Hashable) -> None:
        known = self.runs(partition).get(dropped.run)
        if known is not None:
            last = dropped.begin if dropped.count == 1 else dropped.end - 1
            known.lost_begin = max(known.lost_begin, last)

    def expire(self, passed: Callable[[Hashable, Original], bool]) -> None:
        """Forget runs that the window has passed."""
        self._keep(lambda partition, _, original: not passed(partition, original))
        if not self._count:
            self.halvings = 0

    def runs(self, partition: Hashable) -> Mapping[int, Original]:
        return self._partitions.get(partition, {})

    @property
    def share(self) -> float:
        """The share of runs that is looked at."""
        return 0.5**self.halvings

    def samples(self, run: int) -> bool:
        """Is this one of the runs that are looked at?"""
        return not self.halvings or scattered(run, SEED) & ((1 << self.halvings) - 1) == 0

    def _keep(self, wanted: Callable[[Hashable, int, Original], bool]) -> None:
        kept = {
            partition: {run: one for run, one in runs.items() if wanted(partition, run, one)}
            for partition, runs in self._partitions.items()
        }
        self._partitions = {partition: runs for partition, runs in kept.items() if runs}
        self._count = sum(map(len, self._partitions.values()))

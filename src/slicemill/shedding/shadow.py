"""Shadow of the exact result, for measuring accuracy (L25).

The begin and end of each run are stored before anything is dropped, and are kept if all its tuples are
dropped. The accuracy of the remaining tuples follows from these. This accuracy is exact, except for the
oldest run of a partition if the first tuple in the window was dropped. If there are many runs, only a
sample of them is stored, selected by run number. Accuracy is then that of the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field

from slicemill.shedding.chains import Tuple, Values
from slicemill.shedding.methods import scattered
from slicemill.storage.codec import stored_as

LIMIT = 1024
_LEAST = 64
ORIGINAL_BYTES = 400  # per stored run, in the row-wise form
SEED = 0x5AD0


def runs_remembered(capacity: int) -> int:
    """Return the number of runs stored beside a memory of this capacity.

    >>> [runs_remembered(capacity) for capacity in (10, 2_500, 100_000)]
    [64, 312, 1024]
    """
    return min(LIMIT, max(_LEAST, capacity // 8))


@stored_as("shed.original", version=1)
@dataclass(slots=True)
class Original:
    """A run before anything was dropped.

    `last_begin` and `last_number` belong to its last tuple. `lost_begin` is the begin of its latest
    dropped tuple.
    """

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
    """Runs by partition.

    If there are more than `limit`, every second run is dropped, repeatedly.
    """

    limit: int = LIMIT
    halvings: int = 0
    _count: int = 0
    _partitions: dict[Hashable, dict[int, Original]] = field(default_factory=dict)

    def __len__(self) -> int:
        return self._count

    def saw(self, tuple_: Tuple, partition: Hashable) -> None:
        """Add a tuple whose period has ended.

        Its run continues, or begins with it.
        """
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
        """Drop runs that left the window."""
        self._keep(lambda partition, _, original: not passed(partition, original))
        if not self._count:
            self.halvings = 0

    def runs(self, partition: Hashable) -> Mapping[int, Original]:
        return self._partitions.get(partition, {})

    @property
    def share(self) -> float:
        """Return the share of runs that are stored."""
        return 0.5**self.halvings

    def samples(self, run: int) -> bool:
        """Return True if this run is in the sample."""
        return not self.halvings or scattered(run, SEED) & ((1 << self.halvings) - 1) == 0

    def _keep(self, wanted: Callable[[Hashable, int, Original], bool]) -> None:
        kept = {
            partition: {run: one for run, one in runs.items() if wanted(partition, run, one)}
            for partition, runs in self._partitions.items()
        }
        self._partitions = {partition: runs for partition, runs in kept.items() if runs}
        self._count = sum(map(len, self._partitions.values()))

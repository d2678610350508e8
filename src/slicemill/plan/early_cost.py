"""When panes in two phases pay (`plan.early_panes`): what rows and entries cost, and how many there were.

Of a batch of N rows, with P buckets and C cores:

| | processor time | the longest way |
|---|---|---|
| one phase | P·read·N + make·N | read·N + make·N / P |
| two phases | F + P·merge·E, where F = (read + make)·N + write·E + chunk·C | F / C + merge·E |

Reading is what every bucket does with every row: conditions, keys, whose bucket it is. E counts early
entries: one for each pane, key and set of conditions in each chunk. A core's share of the first column and
the second are added up. So two phases are chosen where cores would stand idle or do the same work again, and
where rows become so few entries that merging these is little.
"""

from __future__ import annotations

from dataclasses import dataclass

# Nanoseconds, for a mean per key of 500 000 rows with the kernels in one process; other aggregates and more
# conditions take longer to make, on both sides.
READ_NS = 45.0
MAKE_NS = 30.0
WRITE_NS = 60.0
MERGE_NS = 100.0
CHUNK_NS = 1_500_000.0

_FADES = 0.8
# Before anything is counted: without keys, only panes and conditions tell tuples apart.
_ASSUMED_ROWS = 100_000.0
_ASSUMED_REDUCTION = 100.0


@dataclass(frozen=True, slots=True)
class Counted:
    """Of one run: rows that went into panes, the entries they became, and early entries that were read."""

    rows: int = 0
    entries: int = 0
    early: int = 0

    def __add__(self, other: Counted) -> Counted:
        return Counted(self.rows + other.rows, self.entries + other.entries, self.early + other.early)


@dataclass(slots=True)
class PaneStatistics:
    """What was counted in a unit's runs; what is long ago fades.

    `fragments` is how many early entries become one, known once there were any: one is of a single chunk.
    """

    rows: float = 0.0
    entries: float = 0.0
    runs: float = 0.0
    fragments: float = 1.0

    def observe(self, counted: Counted) -> None:
        if not counted.entries:
            return
        self.rows = self.rows * _FADES + counted.rows
        self.entries = self.entries * _FADES + counted.entries
        self.runs = self.runs * _FADES + 1
        if counted.early:
            self.fragments = counted.early / counted.entries

    @property
    def rows_a_run(self) -> float:
        return self.rows / self.runs if self.runs else _ASSUMED_ROWS

    @property
    def reduction(self) -> float:
        """Rows that become one early entry."""
        return self.rows / (self.entries * self.fragments) if self.entries else _ASSUMED_REDUCTION


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether tasks that read make panes, and why, in words for people."""

    early: bool
    why: str


def choose(known: PaneStatistics, keyed: bool, buckets: int, cores: int) -> Choice:
    """One phase or two, for windows whose panes can be made early."""
    if keyed and not known.runs:
        return Choice(False, "how many tuples have the same pane and key is not counted yet")
    one, two = costs(known.rows_a_run, known.reduction, buckets, cores)
    counted = "counted" if known.runs else "assumed"
    batch = f"{known.rows_a_run:,.0f} tuples a run, {known.reduction:,.1f} to an entry ({counted})"
    return Choice(two < one, f"{batch}: {two:,.1f} ms in two phases, {one:,.1f} ms in one")


def costs(rows: float, reduction: float, buckets: int, cores: int) -> tuple[float, float]:
    """What a batch costs in one phase and in two, in milliseconds.

    >>> one, two = costs(1_000_000, 1_000, buckets=1, cores=2)
    >>> two < one
    True
    """
    entries = rows / reduction
    first = (READ_NS + MAKE_NS) * rows + WRITE_NS * entries + CHUNK_NS * cores
    one = (buckets * READ_NS + MAKE_NS) * rows / cores + (READ_NS + MAKE_NS / buckets) * rows
    two = (first + buckets * MERGE_NS * entries) / cores + first / cores + MERGE_NS * entries
    return one / 1e6, two / 1e6

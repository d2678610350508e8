"""What a join has seen of its streams and of itself: the plan of its cuts is made from that (S18, S20, S52).

Every cell measures and plans for itself, with its state, so that nothing has to be collected. Costs are in
comparisons of a pair; what writing rows anew takes is measured beside that (Csys), both in processor time of
this machine while the join runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from slicemill.operators.join.inspection import Cuts
from slicemill.operators.join.slices.set_wise import (
    SetWiseStream,
    cheapest_cuts,
    fair_price,
    finest_cuts,
    tuple_seconds,
)
from slicemill.operators.join.slices.statistics import Statistics
from slicemill.operators.join.windows import Reach
from slicemill.storage.codec import stored_as

_SECOND_US = 1_000_000
_ENOUGH = 10_000  # rows or pairs that must be timed before it counts
_REWRITING = 8.0  # before that: as measured on one machine
_MORE = 1.25  # so many times the rows of the last plan make a new one


@stored_as("join.timed", version=1)
@dataclass(slots=True)
class MeasuredStage:
    """How often something was done, and the processor seconds that it took."""

    times: int = 0
    seconds: float = 0.0

    @contextmanager
    def doing(self, times: int) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.seconds += time.thread_time() - began
        self.times += times


@stored_as("join.side_measures", version=1)
@dataclass(slots=True)
class SideMeasures:
    """Of one side: rows that came in, for how long rows have been within reach in all, how often they were
    compared; and of a sample how many rows each query wants, and is the last one to want."""

    rows: int = 0
    kept_s: float = 0.0
    compared: int = 0
    sampled: int = 0
    wanted: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def time_passes(self, held: int, new: int, elapsed_s: float, window_s: float) -> None:
        """Rows that were held, of all ages, and new ones, that came evenly, grow older."""
        within_s = min(elapsed_s, window_s)
        self.rows += new
        self.kept_s += held * (within_s - within_s**2 / (2 * window_s))
        self.kept_s += new * (within_s - within_s**2 / (2 * elapsed_s))

    def sample(self, wanted: Mapping[str, int], last: Mapping[str, int]) -> None:
        self.sampled += sum(last.values())
        for counted, new in ((self.wanted, wanted), (self.last, last)):
            for name, rows in new.items():
                counted[name] = counted.get(name, 0) + rows


@stored_as("join.measures", version=1)
@dataclass(slots=True)
class Measures:
    """All that is measured, and for how many rows cuts were last planned."""

    sides: tuple[SideMeasures, SideMeasures] = field(default_factory=lambda: (SideMeasures(), SideMeasures()))
    first_us: int | None = None
    reached_us: int = 0
    probing: MeasuredStage = field(default_factory=MeasuredStage)
    writing: MeasuredStage = field(default_factory=MeasuredStage)
    planned_rows: int = 0

    def begin_anew(self) -> None:
        """Other queries want other rows; what a comparison and a write take stays."""
        self.sides = (SideMeasures(), SideMeasures())
        self.first_us, self.planned_rows = None, 0

    def time_passes(self, first_us: int, until_us: int) -> float:
        """How many seconds this run is behind the one before; `first_us` is when the first one began."""
        before = self.reached_us
        if self.first_us is None:
            self.first_us = before = first_us
        self.reached_us = until_us
        return (until_us - before) / _SECOND_US

    def is_due(self) -> bool:
        """Has much been seen since the last plan?"""
        rows = sum(side.rows for side in self.sides)
        if rows < max(_ENOUGH, self.planned_rows * _MORE):
            return False
        self.planned_rows = rows
        return True

    @property
    def elapsed_s(self) -> float:
        return (self.reached_us - (self.first_us or 0)) / _SECOND_US

    @property
    def rewriting(self) -> float:
        """What a cut costs for each row that comes to it, in comparisons: Csys."""
        if min(self.probing.times, self.writing.times) < _ENOUGH or not self.probing.seconds:
            return _REWRITING
        a_row, a_pair = (t.seconds / t.times for t in (self.writing, self.probing))
        return a_row / a_pair

    def statistics(self) -> Statistics | None:
        """What the formulas for operators take, of this cell; None while nothing is known."""
        if not all(side.sampled and side.kept_s for side in self.sides) or self.elapsed_s <= 0:
            return None
        rates = (self.sides[0].rows / self.elapsed_s, self.sides[1].rows / self.elapsed_s)
        passing = {
            (name, number): rows / side.sampled
            for number, side in enumerate(self.sides)
            for name, rows in side.wanted.items()
        }
        # Every row that a side keeps is compared with those new ones of the other side that have its key.
        matching = [
            side.compared / side.kept_s / rate for side, rate in zip(self.sides, rates[::-1], strict=True)
        ]
        return Statistics(rates, sum(matching) / 2, passing=passing, measured=True)

    def stream(self, side: int, reach: Reach) -> SetWiseStream | None:
        """One side as the planner sees it; None where nothing is known, as of windows that never end."""
        seen = self.sides[side]
        if not seen.sampled or not seen.kept_s:
            return None
        ending = dict.fromkeys((window / _SECOND_US for window, _ in reach.windows.values()), 0.0)
        for name, rows in seen.last.items():
            ending[reach.windows[name][0] / _SECOND_US] += rows / seen.sampled
        return SetWiseStream(ending, seen.compared / seen.kept_s, self.rewriting)

    def cuts(self, side: int, reach: Reach) -> Cuts | None:
        """Where to cut for what has been measured: finest, cheapest, and between, which is what is used."""
        stream = self.stream(side, reach)
        if stream is None:
            return None
        used = cheapest_cuts(stream, fair_price(stream))
        return Cuts(
            f"input {side}",
            self.sides[side].rows / self.elapsed_s,
            stream.compared,
            stream.rewriting,
            finest_cuts(stream),
            cheapest_cuts(stream),
            used,
            self.sides[side].rows / self.elapsed_s * tuple_seconds(stream, used),
        )

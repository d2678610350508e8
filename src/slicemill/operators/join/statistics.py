"""Statistics of a join, from which its slice borders are planned (S18, S20, S52).

Each subtask measures and plans for itself, so that no statistics are sent between subtasks. The unit of
cost is the comparison of a pair. The cost of rewriting a row (Csys) is converted to comparisons. Both costs
are measured as processor time while the join runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from slicemill.codec.registry import stored_as
from slicemill.columns.pieces import Slice
from slicemill.operators.join.block import WindowReach
from slicemill.operators.join.slices.cuts import (
    SetWiseStream,
    cheapest_cuts,
    fair_price,
    finest_cuts,
    tuple_seconds,
)
from slicemill.operators.join.slices.workload import Statistics
from slicemill.operators.join.spec import SIDES
from slicemill.time import SECOND_US

# minimum number of probes before their measured matches are used
_ENOUGH_PROBES = 4_096

# number of rows of all inputs between two plans of the probing orders
_ORDERED_AFTER = 20_000

# minimum number of rows or pairs before their measured processor time is used
_ENOUGH = 10_000

# default cost of rewriting one row in comparisons of a pair, as measured on one machine
_REWRITING = 8.0

# Slice borders are planned again when the number of rows has grown by this factor.
_MORE = 1.25


@stored_as("join.timed", version=1)
@dataclass(slots=True)
class MeasuredStage:
    """Number of executions of an operation of the join, and their processor time in seconds."""

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
    """Statistics of one join input.

    `rows` counts arrived rows. `kept_s` is the sum of the seconds that rows were in the longest window.
    `compared` counts comparisons. `sampled`, `wanted` and `last` describe a sample of rows. `wanted` counts
    rows by selecting query, and `last` by the selecting query with the longest window.
    """

    rows: int = 0
    kept_s: float = 0.0
    compared: int = 0
    sampled: int = 0
    wanted: dict[str, int] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def time_passes(self, held: int, new: int, elapsed_s: float, window_s: float) -> None:
        """Add the time in seconds for which rows were in the longest window since the last micro-batch.

        The sum assumes that stored rows have ages evenly distributed over the window, and that new rows
        arrived evenly.
        """
        within_s = min(elapsed_s, window_s)
        self.rows += new
        self.kept_s += held * (within_s - within_s**2 / (2 * window_s))
        self.kept_s += new * (within_s - within_s**2 / (2 * elapsed_s))

    def sample(self, wanted: Mapping[str, int], last: Mapping[str, int]) -> None:
        self.sampled += sum(last.values())
        for counted, new in ((self.wanted, wanted), (self.last, last)):
            for name, rows in new.items():
                counted[name] = counted.get(name, 0) + rows


@stored_as("multijoin.probes", version=1)
@dataclass(slots=True)
class ProbeMeasures:
    """Statistics of one probe, which joins partial results with rows of one more input.

    `probes` counts the partial results, `met` the candidates that they found, and `kept` the remaining
    results. Candidates have the same key, a matching age and a matching mask. Remaining results also pass the
    conditions.
    """

    probes: float = 0.0
    met: float = 0.0
    kept: float = 0.0

    @property
    def expected(self) -> float | None:
        """Return the mean number of matches per partial result, or None after too few probes."""
        return self.kept / self.probes if self.probes >= _ENOUGH_PROBES else None


def _by_input(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade stored join statistics of version 1, which existed only for joins of two streams."""
    return {**old, "sides": dict(zip(SIDES, old["sides"], strict=True)), "probes": {}}


def _of_several_streams(old: dict[str, Any]) -> dict[str, Any]:
    """Upgrade stored statistics that were specific to joins of three or more streams."""
    rows, since = old["rows"], old["since"]
    sides = {name: SideMeasures(rows=count) for name, count in rows.items()}
    kept = {name: old[name] for name in ("probes", "first_us", "reached_us", "writing")}
    return {**kept, "sides": sides, "probing": MeasuredStage(), "planned_rows": sum(rows.values()) - since}


@stored_as("join.measures", version=2, upgrade={1: _by_input})
@stored_as("multijoin.measures", version=2, upgrade={1: _of_several_streams})
@dataclass(slots=True)
class Measures:
    """Statistics of a join: of each input, of each probe, and of the cost of operations.

    Probes are counted only in joins of several streams, whose probing orders depend on the counts.
    """

    sides: dict[str, SideMeasures] = field(default_factory=dict)
    probes: dict[str, ProbeMeasures] = field(default_factory=dict)
    first_us: int | None = None
    reached_us: int = 0
    probing: MeasuredStage = field(default_factory=MeasuredStage)
    writing: MeasuredStage = field(default_factory=MeasuredStage)
    planned_rows: int = 0

    def side(self, input_: str) -> SideMeasures:
        return self.sides.setdefault(input_, SideMeasures())

    def begin_anew(self) -> None:
        """Reset the statistics of rows, but keep the measured costs of operations.

        The engine calls this function when queries were added or removed, because the new queries select
        other rows.
        """
        self.sides, self.probes = {}, {}
        self.first_us, self.planned_rows = None, 0

    def time_passes(self, first_us: int, until_us: int) -> float:
        """Advance the measured time to `until_us`, and return the seconds since the last micro-batch.

        In the first micro-batch, return the seconds since `first_us`.
        """
        before = self.reached_us
        if self.first_us is None:
            self.first_us = before = first_us
        self.reached_us = until_us
        return (until_us - before) / SECOND_US

    def record_probe(self, name: str, probes: int, met: int, kept: int) -> None:
        found = self.probes.setdefault(name, ProbeMeasures())
        found.probes += probes
        found.met += met
        found.kept += kept

    def orders_are_due(self) -> bool:
        """Return True if enough rows arrived since the probing orders were planned.

        If so, halve the counts of older probes.
        """
        rows = sum(side.rows for side in self.sides.values())
        if rows - self.planned_rows < _ORDERED_AFTER:
            return False
        self.planned_rows = rows
        for found in self.probes.values():
            found.probes, found.met, found.kept = (n / 2 for n in (found.probes, found.met, found.kept))
        return True

    def cuts_are_due(self) -> bool:
        """Return True if enough rows arrived since the slice borders were planned."""
        rows = sum(side.rows for side in self.sides.values())
        if rows < max(_ENOUGH, self.planned_rows * _MORE):
            return False
        self.planned_rows = rows
        return True

    @property
    def elapsed_s(self) -> float:
        return (self.reached_us - (self.first_us or 0)) / SECOND_US

    @property
    def rewriting(self) -> float:
        """Return the cost of rewriting one row at a slice border, in comparisons of a pair (Csys)."""
        if min(self.probing.times, self.writing.times) < _ENOUGH or not self.probing.seconds:
            return _REWRITING
        a_row, a_pair = (t.seconds / t.times for t in (self.writing, self.probing))
        return a_row / a_pair

    def statistics(self, stored: Mapping[str, int]) -> Statistics | None:
        """Return the measured statistics of this subtask for the cost formulas, or None.

        The result is None if too little was measured. `stored` has the current number of stored rows of each
        input.
        """
        if self.elapsed_s <= 0:
            return None
        rates = tuple(self.side(name).rows / self.elapsed_s for name in stored)
        if self.probes:
            shares = [
                found.met / (found.probes * held)
                for name, found in self.probes.items()
                if "=" in name and found.probes and (held := list(stored.values())[int(name.split(":")[0])])
            ]
            return Statistics(rates, sum(shares) / len(shares), measured=True) if shares else None
        sides = [self.side(name) for name in stored]
        if not sides or not all(side.sampled and side.kept_s for side in sides):
            return None
        passing = {
            (name, number): rows / side.sampled
            for number, side in enumerate(sides)
            for name, rows in side.wanted.items()
        }
        # Each stored row is compared with the new rows of the other input that have the same join key.
        matching = [side.compared / side.kept_s / rate for side, rate in zip(sides, rates[::-1], strict=True)]
        return Statistics(rates, sum(matching) / 2, passing=passing, measured=True)

    def stream(self, input_: str, reach: WindowReach) -> SetWiseStream | None:
        """Return the statistics of one join input, from which its slice borders are planned, or None.

        The result is None if nothing was measured, for example because windows are unbounded.
        """
        seen = self.side(input_)
        if not seen.sampled or not seen.kept_s:
            return None
        ending = dict.fromkeys((window / SECOND_US for window, _ in reach.windows.values()), 0.0)
        for name, rows in seen.last.items():
            ending[reach.windows[name][0] / SECOND_US] += rows / seen.sampled
        return SetWiseStream(ending, seen.compared / seen.kept_s, self.rewriting)

    def cuts(self, input_: str, reach: WindowReach) -> Cuts | None:
        """Return three sets of slice borders of one join input, of which the join uses one.

        `finest` borders need the least memory, and `cheapest` borders the fewest comparisons. The `used`
        borders weigh memory and comparisons, and therefore lie between both.
        """
        stream = self.stream(input_, reach)
        if stream is None:
            return None
        used = cheapest_cuts(stream, fair_price(stream))
        rate = self.side(input_).rows / self.elapsed_s
        return Cuts(
            name_of(input_),
            rate,
            stream.compared,
            stream.rewriting,
            finest_cuts(stream),
            cheapest_cuts(stream),
            used,
            rate * tuple_seconds(stream, used),
        )


# The classes below describe the state slices of a join, their borders and their statistics for monitoring.


def name_of(input_: str) -> str:
    """Return the name of a join input that messages show to users."""
    return f"input {input_}" if input_ in SIDES else input_.removeprefix("log ")


@dataclass(frozen=True, slots=True)
class SliceContent:
    """Time range and row counts of one state slice or of one table of waiting rows.

    `part` names the part of the state, for example `input 0, waiting`.
    """

    part: str
    # stored slice, or None for a small table that is not stored as a slice
    slice: Slice | None
    rows: int
    earliest: int
    latest: int
    # number of rows that each query selects, by name of the query
    wanted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Cuts:
    """Slice borders of one join input, with their statistics.

    Slice borders are ages in seconds. Rates are per second. `rewriting` is the cost of a border in
    comparisons, for each row that becomes as old as the border.
    """

    part: str
    rate: float
    # mean number of comparisons per second in which one stored row takes part
    compared: float
    rewriting: float
    finest: tuple[float, ...]
    cheapest: tuple[float, ...]
    used: tuple[float, ...]
    expected_rows: float


@runtime_checkable
class Inspectable(Protocol):
    """State that reports its state slices, slice borders and statistics for monitoring."""

    def held(self) -> Sequence[SliceContent]: ...

    def cuts(self) -> Sequence[Cuts]: ...

    def statistics(self) -> Statistics | None: ...

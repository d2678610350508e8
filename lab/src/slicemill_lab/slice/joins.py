"""Queries, arrivals and runs of the sliced-join experiments slice-E8 to slice-E10 (S53).

Arrivals are Poisson. A hash of two tuples decides if they match, so every method sees the same matches. CPU
is the number of comparisons, so a service rate is in tuples per million comparisons. The published machine is
not available, and orders, signs and ratios do not depend on ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from slicemill.operators.join.slices.cuts import mem_opt
from slicemill.operators.join.slices.workload import ChainCost, JoinWorkload, Member, member
from slicemill.types import Row, Timed
from slicemill_lab.experiment import Scale
from slicemill_oracle.slices.chain import Chain
from slicemill_oracle.slices.time_slice import Condition
from slicemill_oracle.slices.unshared import PushDown, QueriesJoin, pull_up

SECOND_US = 1_000_000
WAYS = ("state-slice", "pull-up", "push-down")
LONGEST_S = 30.0
WINDOWS_S = {
    "mostly small": (5.0, 10.0, 30.0),
    "uniform": (10.0, 20.0, 30.0),
    "mostly large": (20.0, 25.0, 30.0),
}
JOIN_SELECTIVITIES = (0.025, 0.1, 0.4)
SHRUNK: Mapping[Scale, float] = {"small": 1 / 10, "full": 1.0}
"""Factor for windows and running time. It reduces state, and so the time to run; ratios hardly change."""
RATES: Mapping[Scale, tuple[int, ...]] = {"small": (20, 40, 60), "full": (20, 40, 60, 80)}
GOLDEN_RATIO = (5**0.5 - 1) / 2
RUN_WINDOWS = 3
"""A run takes three times the longest window, from empty states. State is measured after the first."""


@dataclass(frozen=True, slots=True)
class JoinSetting:
    """Three queries: the first has no selection, the others share one selection on A."""

    windows: str
    selectivity: float
    join_selectivity: float

    def __str__(self) -> str:
        return f"{self.windows}, Ss {self.selectivity:g}, Sj {self.join_selectivity:g}"


@dataclass(frozen=True, slots=True)
class MeasuredJoins:
    """Measurements of a run: mean state after the warm-up, comparisons, and tuples in and out."""

    state: float
    comparisons: float
    arrived: int
    results: int

    @property
    def service_rate(self) -> float:
        """Arrived tuples per million comparisons."""
        return 1e6 * self.arrived / self.comparisons


def arrivals(rate: float, seconds: float, seed: int) -> Iterator[tuple[int, Timed]]:
    """Yield tuples of two streams in order: a number for matching, and one from 0 to 1 for selections.

    The latter are spread evenly over any stretch of a stream, so that even a short run has the intended
    selectivity.
    """
    random = Random(f"sliced {seed}")
    merged = []
    for stream in (0, 1):
        at, share = 0.0, random.random()
        while (at := at + random.expovariate(rate)) < seconds:
            share = (share + GOLDEN_RATIO) % 1
            merged.append((round(at * SECOND_US), stream, (random.getrandbits(32), share)))
    for ts, stream, row in sorted(merged):
        yield stream, Timed(ts, row)


def matching(selectivity: float) -> Condition:
    """Return a join condition that holds for a share of all pairs, the same pairs in every run."""
    limit = round(selectivity * 2**32)

    def matches(left: Row, right: Row) -> bool:
        mixed: int = (left[0] ^ right[0]) * 2_654_435_761  # type: ignore[operator]
        return mixed & 0xFFFFFFFF < limit

    return matches


def measure(
    join: QueriesJoin, rate: float, longest_s: float, seed: int, overhead: float = 0.0
) -> MeasuredJoins:
    """Run a join from empty states. `overhead` is charged per tuple and operator, in comparisons."""
    warm = longest_s * SECOND_US
    states = []
    arrived = results = 0
    for stream, tuple_ in arrivals(rate, RUN_WINDOWS * longest_s, seed):
        arrived += 1
        results += len(join.process(stream, tuple_))
        if tuple_.ts >= warm:
            states.append(join.state_size)
    return MeasuredJoins(sum(states) / len(states), join.counters.cost(overhead), arrived, results)


@cache
def measured(setting: JoinSetting, rate: int, scale: Scale, seed: int) -> dict[str, MeasuredJoins]:
    """Run one setting with each method."""
    members = queries(setting, SHRUNK[scale])
    condition = matching(setting.join_selectivity)
    plan = mem_opt(workload(setting, rate, scale))
    joins: dict[str, Callable[[], QueriesJoin]] = {
        "state-slice": lambda: Chain(members, plan.ends, condition),
        "pull-up": lambda: pull_up(members, condition),
        "push-down": lambda: PushDown(members, condition),
    }
    return {way: measure(joins[way](), rate, LONGEST_S * SHRUNK[scale], seed) for way in WAYS}


def by_panel(
    panels: Mapping[str, JoinSetting], scale: Scale, seed: int, figure: Callable[[MeasuredJoins], float]
) -> dict[str, dict[str, list[float]]]:
    """Return a figure of each method at each rate, for each panel."""
    return {
        panel: {
            way: [figure(measured(setting, rate, scale, seed)[way]) for rate in RATES[scale]] for way in WAYS
        }
        for panel, setting in panels.items()
    }


def modelled(setting: JoinSetting, rate: float, scale: Scale) -> dict[str, ChainCost]:
    """Return the expected cost of each method by the cost model, per second."""
    plan = mem_opt(workload(setting, rate, scale))
    return {"state-slice": plan.expected} | {way: plan.baselines[way] for way in WAYS[1:]}


def workload(setting: JoinSetting, rate: float, scale: Scale) -> JoinWorkload:
    """Return the setting as input of the planner. Time is in µs."""
    per_us = rate / SECOND_US
    return JoinWorkload(queries(setting, SHRUNK[scale]), (per_us, per_us), setting.join_selectivity)


def queries(setting: JoinSetting, shrunk: float) -> tuple[Member, ...]:
    """Return Q1 without a filter, Q2 and Q3 with the same filter."""
    first, *others = (round(window * shrunk * SECOND_US) for window in WINDOWS_S[setting.windows])
    selected = _selection(setting.selectivity)
    return (
        member("Q1", first),
        *(
            member(f"Q{number}", window, selected, setting.selectivity)
            for number, window in enumerate(others, 2)
        ),
    )


@cache
def _selection(selectivity: float) -> Callable[[Row], bool]:
    # One object per selectivity, so that equal predicates are the same object.
    def selected(row: Row) -> bool:
        return float(str(row[1])) < selectivity

    return selected


def saved(ours: float, theirs: float) -> float:
    """Return the percentage saved relative to the other method."""
    return 100 * (1 - ours / theirs)


def more(ours: float, theirs: float) -> float:
    """Return the percentage above the other method."""
    return 100 * (ours / theirs - 1)


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def open_interval(steps: int) -> list[float]:
    """Return evenly spaced numbers between 0 and 1, without the ends."""
    return [step / (steps + 1) for step in range(1, steps + 1)]

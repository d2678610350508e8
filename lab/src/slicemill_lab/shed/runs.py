"""Streams and memories for the experiments on temporal shedding, and the remaining accuracy (L20).

A window of 500 tuples slides over a stream; memory holds a share of them. Gaps between tuples are integers
from 1 to 10. With probability p a tuple repeats the previous value. Accuracy is measured every 100 tuples,
after two window lengths. Runs are cached, because experiments share them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from slicemill.shedding.accuracy import Interval, accuracy_sums
from slicemill.shedding.memory import ChainMemory, FastMemory, NewestTuple, RandomMemory, ScanMemory, Tuple
from slicemill.shedding.methods import METHODS, Method, TieBreak
from slicemill_lab.experiment import Scale

WINDOW = 500
EVERY = 100
PROBABILITIES = (0.1, 0.3, 0.5, 0.7, 0.9)
RATIOS = (0.5, 0.6, 0.7, 0.8, 0.9)
SENSORS = {"humidity": 0.29, "voltage": 0.64, "light": 0.86}
"""Coalescing probabilities measured on the sensors of the Intel lab in Berkeley."""
GAP_QUARTILES = (3, 5, 8)
"""Quartiles of the tuples' own durations: thresholds of the published experiments (ambiguity g)."""

NAMES = {
    "CALS": "lookahead",
    "CALS as printed": "cals",
    "CALS-V": "value",
    "CALS-I": "interval",
    "RAND": "random",
}
ARRIVALS: Mapping[Scale, int] = {"small": 1_600, "full": 6_000}
SEEDS: Mapping[Scale, int] = {"small": 3, "full": 10}


@dataclass(frozen=True)
class ShedSetting:
    """Setting of a run. `batch` tuples are added before memory is reduced to its size (L22)."""

    method: str
    p: float
    ratio: float
    threshold: int = 0
    ties: TieBreak = TieBreak.RANDOM
    batch: int = 1
    window: int = WINDOW
    weights: tuple[float, float] | None = None

    @property
    def capacity(self) -> int:
        return round(self.ratio * self.window)

    def rule(self, seed: int) -> Method:
        method = replace(METHODS[self.method], ties=self.ties, seed=seed)
        if method.threshold is not None:
            method = replace(method, threshold=self.threshold)
        return (
            method if self.weights is None else replace(method, split=self.weights[0], lost=self.weights[1])
        )

    def memory(self, seed: int) -> ChainMemory:
        method = self.rule(seed)
        if method.blind:
            return RandomMemory(self.capacity, method)
        cheap_splits = 0 < method.split < method.lost
        return (ScanMemory if cheap_splits else FastMemory)(self.capacity, method)


@cache
def stream(p: float, count: int, seed: int) -> Sequence[Tuple]:
    """Return tuples with their periods and the numbers of their runs. Copy them before adding to a memory."""
    random = Random(f"{p} {seed}")
    found, ts, run = [], 0, 0
    for number in range(count):
        run += number > 0 and random.random() >= p
        end = ts + random.randint(1, 10)
        found.append(Tuple(run, ts, end, number, number, run))
        ts = end
    return found


@cache
def accuracies(
    setting: ShedSetting, scale: Scale, seed: int, thresholds: tuple[int, ...] = (0,)
) -> Sequence[float]:
    """Return the mean accuracy for queries with each of these least durations, in one pass."""
    tuples = stream(setting.p, ARRIVALS[scale], seed)
    memory = setting.memory(seed)
    sums = [[0.0, 0.0] for _ in thresholds]
    for place, tuple_ in enumerate(tuples[:-1]):
        follower = NewestTuple(tuples[place + 1].values, tuples[place + 1].begin)
        memory.expire(0, number=place + 1 - setting.window)
        memory.add(0, Tuple(*tuple_.plain()), follower)
        cut = (place + 1) % setting.batch == 0
        if cut:
            while memory.shed() is not None:
                pass
        if cut and place + 1 >= 2 * setting.window and (place + 1) % EVERY == 0:
            exact = intervals(tuples[place + 1 - setting.window : place + 1])
            left = intervals(memory.kept(0))
            for known, least in zip(sums, thresholds, strict=True):
                known[0] += accuracy_of(exact, left, least)
                known[1] += 1
    return [total / count for total, count in sums]


def intervals(tuples: Sequence[Tuple]) -> dict[int, list[Interval]]:
    """Return the remaining intervals of each run."""
    found: dict[int, list[Interval]] = {}
    for one in tuples:
        pieces = found.setdefault(one.run, [])
        if pieces and pieces[-1][1] == one.begin:
            pieces[-1] = (pieces[-1][0], one.end)
        else:
            pieces.append((one.begin, one.end))
    return found


def accuracy_of(
    exact: Mapping[int, Sequence[Interval]], left: Mapping[int, Sequence[Interval]], least: int = 0
) -> float:
    """Return the accuracy over runs with at least this duration."""
    wanted = {run: pieces[0] for run, pieces in exact.items() if pieces[0][1] - pieces[0][0] >= least}
    found = {run: [one for one in pieces if one[1] - one[0] >= least] for run, pieces in left.items()}
    shares, results = accuracy_sums(wanted, found)
    return shares / results if results else 1.0


def over_seeds(
    setting: ShedSetting, scale: Scale, seed: int, thresholds: tuple[int, ...] = (0,)
) -> list[Sequence[float]]:
    """Return a row per seed."""
    return [accuracies(setting, scale, seed + number, thresholds) for number in range(SEEDS[scale])]


def mean_accuracy(setting: ShedSetting, scale: Scale, seed: int) -> float:
    rows = over_seeds(setting, scale, seed)
    return sum(row[0] for row in rows) / len(rows)


def table(name: str, probabilities: Sequence[float], scale: Scale, seed: int) -> dict[float, list[float]]:
    """Return the accuracy of a method by coalescing probability and memory ratio."""
    return {
        p: [mean_accuracy(ShedSetting(NAMES[name], p, ratio), scale, seed) for ratio in RATIOS]
        for p in probabilities
    }


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def quartiles(p: float, scale: Scale, seed: int) -> tuple[int, int, int]:
    """Return the quartiles of the lengths of coalesced runs (L23)."""
    tuples = stream(p, ARRIVALS[scale], seed)
    lengths = sorted(pieces[0][1] - pieces[0][0] for pieces in intervals(tuples).values())
    return tuple(lengths[len(lengths) * quarter // 4] for quarter in (1, 2, 3))  # type: ignore[return-value]

"""Simulation of aggregates over sliding windows: the end of each slide is a deadline (P4, P24, P25).

A query adds each tuple to all of its windows that contain the tuple. The work of an instant is all
unprocessed tuples that arrived before its deadline. An instant completes with its last tuple, but not before
its deadline.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from slicemill.kernels.arrays import Floats, Int64s
from slicemill.metrics.quality_of_service import tardiness
from slicemill_lab.simulator.deadlines import DeadlineRule, choose_instant
from slicemill_lab.testbeds.arrivals import on_off


class AggregateWork(NamedTuple):
    """One stream, and for each query its slide and its time per tuple."""

    times: Floats
    slide: Floats
    cost: Floats


def sliding_aggregates(
    utilisation: float, seed: int, *, queries: int = 250, tuples: int = 20_000, rate: float = 10.0
) -> AggregateWork:
    """Return ON/OFF arrivals; slides log-uniform over 1 to 100 s, ranges of 1 to 10 slides (A19)."""
    random = np.random.default_rng([seed, 24])
    times = on_off(tuples, 1 / rate, random)
    slide = np.exp(random.uniform(0, np.log(100), queries))
    windows = random.integers(1, 11, queries)  # windows that contain a tuple: the range in slides
    cost = windows * 2.0 ** random.integers(0, 5, queries)
    return AggregateWork(times, slide, cost * utilisation / (rate * float(cost.sum())))


def simulate_aggregates(work: AggregateWork, rule: DeadlineRule) -> Floats:
    """Simulate the queries. Return the tardiness of each instant that has a tuple."""
    completions, deadlines = _loop(work, int(rule))
    return tardiness(completions, deadlines)


@njit(cache=True)
def _loop(work: AggregateWork, rule: int) -> tuple[Floats, Floats]:
    queries = len(work.slide)
    place, border = np.zeros(queries, np.int64), np.zeros(queries, np.int64)
    due, left = np.zeros(queries), np.full(queries, np.nan)
    instants = 0
    for query in range(queries):
        last = -1.0
        for time in work.times:
            instants += time // work.slide[query] != last
            last = time // work.slide[query]
        _next_instant(work, query, place, border, due)
    completions, deadlines = np.empty(instants), np.empty(instants)
    done = admitted = 0
    now = 0.0
    while True:
        if admitted < len(work.times) and work.times[admitted] <= now:
            while admitted < len(work.times) and work.times[admitted] <= now:
                admitted += 1
            for query in range(queries):
                left[query] = _work_left(work, query, place, border, admitted)
        best = choose_instant(rule, left, due, now)
        if best < 0:
            if admitted == len(work.times):
                return completions, deadlines
            now = work.times[admitted]
            continue
        now += work.cost[best]
        place[best] += 1
        if place[best] == border[best]:
            completions[done], deadlines[done] = max(now, due[best]), due[best]
            done += 1
            _next_instant(work, best, place, border, due)
        left[best] = _work_left(work, best, place, border, admitted)


@njit(cache=True)
def _next_instant(work: AggregateWork, query: int, place: Int64s, border: Int64s, due: Floats) -> None:
    """Find the instant of the query's next tuple: its deadline, and the first tuple after it."""
    if place[query] < len(work.times):
        slide = work.slide[query]
        number = work.times[place[query]] // slide
        due[query] = (number + 1) * slide
        border[query] = place[query] + 1
        while border[query] < len(work.times) and work.times[border[query]] // slide == number:
            border[query] += 1


@njit(cache=True)
def _work_left(work: AggregateWork, query: int, place: Int64s, border: Int64s, admitted: int) -> float:
    """Return the remaining work of the current instant in arrived tuples; NaN if there is none."""
    waiting = min(border[query], admitted) - place[query]
    time: float = waiting * work.cost[query] if waiting > 0 else np.nan
    return time

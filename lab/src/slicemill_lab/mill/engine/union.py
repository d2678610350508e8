"""Union of a busy and a sparse stream on the engine, with four sources of time (mill-spark-E5 to E7).

Streams with their own timestamps and no SKEW have no enabling timestamps but their data (A), and heartbeats
if the source sends them (B). The watermark of streams that the engine stamps is read at each run, on demand
(C). Streams without timestamps are never waited for (D). The engine polls arrivals every 20 ms of virtual
time, which is a lower bound of the response time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import numpy as np
import pyarrow as pa

from slicemill_lab.mill.graphs import PASSING, SECOND_US, Rates, poisson
from slicemill_lab.on_engine import MovedClock, fed_mill

POLL_US = 20_000
A, B, C, D = "A no ETS", "B periodic ETS", "C on-demand ETS", "D latent"
_ORDER = {A: "ORDER BY ts", B: "ORDER BY ts", C: "ORDER BY current_time", D: ""}


@dataclass(frozen=True, slots=True)
class EngineRun:
    """Measurements of one run: virtual response times, waiting tuples, and runs of the union's task."""

    mean_response_ms: float
    waiting_percent: float
    """Percentage of polls after which some tuple still waits, although no task is ready."""
    peak_rows: int
    runs: int


@lru_cache(maxsize=200)
def run_union(way: str, rates: Rates, seed: int, seconds: float, ets_rate: float = 0.0) -> EngineRun:
    """Feed the union and run it after each poll. Held tuples are emitted at the end of the streams."""
    streams = {"busy": rates.busy, "sparse": rates.sparse}
    until_us = round(seconds * SECOND_US)
    arrivals = {
        name: list(poisson(Random(f"{name} {seed}"), rate, until_us)) for name, rate in streams.items()
    }
    passing = sorted(
        arrival.at
        for tuples in arrivals.values()
        for arrival in tuples
        if float(str(arrival.row[0])) < PASSING
    )
    places = dict.fromkeys(streams, 0)
    clock = MovedClock()
    delivered: list[int] = []
    waiting = polls = peak = came = 0
    with fed_mill(_script(way), clock) as mill:
        out = mill.queries["both"]
        for poll_us in _polls(until_us):
            clock.now = poll_us
            for name, tuples in arrivals.items():
                first = places[name]
                while places[name] < len(tuples) and tuples[places[name]].at <= clock.now:
                    places[name] += 1
                if places[name] > first:
                    mill.feed(name, _table([one.row[0] for one in tuples[first : places[name]]], clock.now))
            mill.dispatcher.admit_handed()
            if ets_rate:
                beat_us = SECOND_US / ets_rate
                mill.running.streams["sparse"].announce_at_least("sparse", int(poll_us // beat_us * beat_us))
            clock.now += 1  # time advances by the least possible step while the engine works
            mill.dispatcher.run_all()
            while came < len(passing) and passing[came] <= poll_us:
                came += 1
            delivered += [poll_us] * (out.log.rows - len(delivered))
            polls += 1
            waiting += came > len(delivered)
            peak = max(peak, came - len(delivered))
        mill.dispatcher.end_streams()
        mill.dispatcher.run_all()
        delivered += [clock.now] * (out.log.rows - len(delivered))
        runs = sum(task.statistics.runs for task in mill.dispatcher.tasks.values())
    # Results leave in the order of arrival, so the n-th arrival is the n-th result.
    responses = np.array(delivered) - np.array(passing)
    return EngineRun(float(responses.mean()) / 1000, 100 * waiting / polls, peak, runs)


def sweep(
    rates: Rates, ets_rates: tuple[float, ...], seed: int, seconds: float
) -> dict[str, list[EngineRun]]:
    """Run the lines A no ETS, B periodic at each rate, C on demand, D latent. Only B has several runs."""
    return {
        A: [run_union(A, rates, seed, seconds)],
        B: [run_union(B, rates, seed, seconds, rate) for rate in ets_rates],
        C: [run_union(C, rates, seed, seconds)],
        D: [run_union(D, rates, seed, seconds)],
    }


def _script(way: str) -> str:
    columns = "v double, ts timestamp" if way in (A, B) else "v double"
    declared = "".join(f"CREATE STREAM {name} ({columns}) {_ORDER[way]};" for name in ("busy", "sparse"))
    selections = " UNION ALL ".join(
        f"SELECT v FROM {name} WHERE v < {PASSING}" for name in ("busy", "sparse")
    )
    return f"{declared} CREATE QUERY both AS {selections};"


def _table(values: list[object], now_us: int) -> pa.Table:
    times = pa.array([now_us] * len(values), pa.timestamp("us", tz="UTC"))
    return pa.table({"v": pa.array(values, pa.float64()), "ts": times})


def _polls(until_us: int) -> Iterator[int]:
    yield from range(POLL_US, until_us + POLL_US, POLL_US)

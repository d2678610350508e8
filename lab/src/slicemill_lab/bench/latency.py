"""Benchmark of end-to-end latency from a sender to a subscriber, with Spark and Flink.

One process sends tuples with a timestamp to a socket, and the system runs its queries. Another process reads
result rows as soon as they are visible, and records the time since the timestamp. The latency of a row
emitted by time, such as that of a window, counts from the time when the row was due. Each system runs alone,
started by its own command, with the same tuples at the same rate, and is measured after a warm-up. Systems
take turns, and the best of several rounds counts. Flink runs the single filter, with results visible after a
commit as ours, and without commits. Spark runs one streaming query for each of ours, and fewer where it lacks
operators (see `live.queries`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicemill.runtime.spark_session import ensure_java_home
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.live import queries, systems
from slicemill_lab.bench.live.flink import flink_python
from slicemill_lab.bench.live.session import Times, Watched, watch
from slicemill_lab.bench.live.systems import LiveSystem
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale

RATES = (250, 2_000)
# Queries with frequent results. Windows that rarely end are not waited for.
QUICK = ("bids_in_euro", "highest_bid_so_far", "first_minute_bids", "activity", "price_level")


@dataclass(frozen=True, slots=True)
class LatencySizes:
    """Measured times, rounds and rates."""

    times: Times
    times_for_spark: Times
    rounds: int
    rates: tuple[int, ...]


SIZES: Mapping[Scale, LatencySizes] = {
    "small": LatencySizes(Times(5, 10), Times(15, 15, 10), 1, RATES),
    "full": LatencySizes(Times(20, 30), Times(40, 30, 10), 3, RATES),
}


@dataclass(frozen=True, slots=True)
class LatencyCase:
    """Query set at a rate, with the best run of each system. `missing` has reasons for missing systems."""

    name: str
    rate: int
    best: Mapping[str, Watched]
    missing: Mapping[str, str]

    def ratio(self, rival: str) -> float | None:
        """Return our p50 relative to that of a rival."""
        if rival not in self.best:
            return None
        return self.best["slicemill"].p50_ms / self.best[rival].p50_ms

    def figures(self) -> dict[str, Any]:
        return {**{name: run.figures() for name, run in self.best.items()}, **self.missing}


def run(scale: Scale) -> Result:
    ensure_java_home()
    sizes = SIZES[scale]
    python, why = flink_python()
    flinks = [] if python is None else [systems.flink(python, committed=c) for c in (True, False)]
    missing = {} if python is not None else {"flink": f"not measured: {why}"}
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        bench = LatencyBench(Path(name), sizes)
        one, thirteen, fifty = [], [], []
        for rate in sizes.rates:
            one.append(
                bench.case(
                    "1 filter",
                    rate,
                    [systems.mill(queries.ONE, ("q",)), systems.spark("one", ("q",)), *flinks],
                    missing,
                )
            )
            thirteen.append(
                bench.case(
                    "13 queries",
                    rate,
                    [systems.mill(queries.THIRTEEN, QUICK), systems.spark("thirteen", QUICK)],
                    {"flink": "not measured: it has one filter here"},
                )
            )
            some = queries.fifty()
            waited_for = [query for query in some if query.startswith("over")]
            fifty.append(
                bench.case(
                    "50 queries",
                    rate,
                    [systems.mill(some, waited_for)],
                    {"spark": "not measured: 50 streaming queries are more than this machine can hold"},
                )
            )
    return Result(_claims(one, thirteen), _figures([*one, *thirteen, *fifty]))


def _claims(one: Sequence[LatencyCase], thirteen: Sequence[LatencyCase]) -> tuple[Claim, ...]:
    claims = []
    for case in one:
        ours = case.best["slicemill"]
        lost = abs(len(ours.samples) - ours.filtered)
        claims.append(at_most(f"{case.name}, {case.rate}/s: rows too many or missing, slicemill", lost, 0))
        for rival, bound in (("flink, committed", 1.0), ("flink, uncommitted", 1.0), ("spark", 0.1)):
            claims.append(_compared(case, rival, bound))
    claims += [_compared(case, "spark", 0.05) for case in thirteen]
    return tuple(claims)


def _compared(case: LatencyCase, rival: str, bound: float) -> Claim:
    what = f"{case.name}, {case.rate}/s: p50 from sender to subscriber, slicemill / {rival}"
    ratio = case.ratio(rival)
    if ratio is None:
        why = "; ".join(case.missing.values()) or "not measured"
        return timed(Claim(what, f"≤ {bound:g}", "not measured", False, why))
    ours, theirs = case.best["slicemill"].p50_ms, case.best[rival].p50_ms
    return timed(at_most(what, ratio, bound, f"{ours:g} ms, {theirs:g} ms"))


def _figures(cases: Sequence[LatencyCase]) -> dict[str, Any]:
    goals = {"1 filter": "p50 25 ms", "13 queries": "p50 60 ms, p99 250 ms", "50 queries": "p50 120 ms"}
    return {
        "how": "from the sender's stamp, or from when a row was due, until another process has read the row; "
        "the best of the rounds by p50; CPU of all processes of a system while it was watched",
        "goals on a quiet machine": goals,
        "reached": {
            f"{case.name}, {case.rate}/s": f"p50 {case.best['slicemill'].p50_ms:g} ms, "
            f"p99 {case.best['slicemill'].p99_ms:g} ms"
            for case in cases
        },
        **{f"{case.name}, {case.rate}/s": case.figures() for case in cases},
    }


class LatencyBench:
    """Runs the cases of the benchmark, each run in its own folder."""

    def __init__(self, folder: Path, sizes: LatencySizes) -> None:
        self._folder, self._sizes, self._runs = folder, sizes, 0

    def case(
        self, name: str, rate: int, found: Sequence[LiveSystem], missing: Mapping[str, str]
    ) -> LatencyCase:
        """Run all systems in turns, and return the best run of each."""
        runs: dict[str, list[Watched]] = {}
        for _ in range(self._sizes.rounds):
            for system in found:
                self._runs += 1
                times = self._sizes.times_for_spark if system.name == "spark" else self._sizes.times
                folder = self._folder / f"run-{self._runs}"
                runs.setdefault(system.name, []).append(watch(system, folder, rate, times))
        best = {system: min(each, key=lambda run: run.p50_ms) for system, each in runs.items()}
        return LatencyCase(name, rate, best, missing)


BENCHMARK = Benchmark("Time from a sender to a subscriber, beside Spark's streaming and Flink", run)

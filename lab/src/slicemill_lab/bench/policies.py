"""Which policy is best at what, on Spark: 30 queries of five cost classes over a bursty stream.

All policies get the same recorded arrivals and start with the same measured costs and selectivities. The
session has one core, so one unit runs at a time, as the policies assume. The gap between arrivals is set so
that the costs measured first make 90 % of it; larger batches are cheaper by the row, so a mill that falls
behind is less loaded than that, and how busy it was is told. Response times run from the moment a group of
rows is fed to the stream to that at which a subscriber has the results. A slowdown is a response time over
T = a + b, what one row would take alone by the costs measured first, the same for all policies. What a whole
group would take alone is told beside it: as a multiple of that, waiting for one's own group is no slowdown.
The policies take their turns in one order and then in the other, and the figures are over both: a process
that warms up and a machine whose other work comes and goes favour none.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from slicemill.engine.mill import Mill
from slicemill.engine.session import local_session
from slicemill.metrics.figures import StaleTime, Summary
from slicemill.metrics.stages import Stages, recording
from slicemill.scheduling.adaptive import BatchCost
from slicemill.scheduling.arrays import Floats
from slicemill.scheduling.policies.policy_registry import POLICIES
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.policies import (
    Recording,
    admit,
    group,
    learned,
    queries,
    replay,
    script,
    teach,
)
from slicemill_lab.bench.measuring.policy_overhead import decision_ms
from slicemill_lab.bench.measuring.waiting import wait_until_read
from slicemill_lab.claims import at_most
from slicemill_lab.experiment import Result, Scale

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 30
LOAD = 0.9
SEED = 7
_WARM_UP = (1, 0, 1)
_MEASURED = (0, 1, 2, 0, 0.5, 1, 0, 2, 1, 0)
"""Groups of the calibration, as multiples of those that come later; 0 is one row."""
_BUSY = ("read: ", "run: ", "commit", "deliver")


@dataclass(frozen=True, slots=True)
class PolicySizes:
    rows: int  # of a group
    groups: int


SIZES: Mapping[Scale, PolicySizes] = {"small": PolicySizes(5_000, 6), "full": PolicySizes(10_000, 40)}


@dataclass
class Deliveries:
    """Results as subscribers get them: how many of which group, and when."""

    found: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)

    def follow(self, mill: Mill) -> None:
        for name, query in mill.queries.items():
            mine = self.found.setdefault(name, [])

            def receive(table: pa.Table, mine: list[tuple[int, int, float]] = mine) -> None:
                now = time.time()
                epochs, counts = np.unique(table.column("epoch").to_numpy(), return_counts=True)
                mine.extend(zip(epochs.tolist(), counts.tolist(), [now] * len(epochs), strict=True))

            query.subscribe(receive)


@dataclass(slots=True)
class PolicyMeasure:
    """What users felt under one policy, in one run or several."""

    response: Summary = field(default_factory=Summary)
    slowdown: Summary = field(default_factory=Summary)
    group_slowdown: Summary = field(default_factory=Summary)
    staleness: Summary = field(default_factory=Summary)
    busy: Summary = field(default_factory=Summary)
    decision: Summary = field(default_factory=Summary)

    def merge(self, other: PolicyMeasure) -> None:
        for one in fields(self):
            getattr(self, one.name).merge(getattr(other, one.name))

    def figures(self) -> dict[str, Any]:
        return {
            "results": self.response.count,
            "mean response s": round(self.response.mean, 4),
            "longest response s": round(self.response.largest, 4),
            "l2 response": round(self.response.l2, 2),
            "mean slowdown": round(self.slowdown.mean, 3),
            "mean slowdown of groups": round(self.group_slowdown.mean, 3),
            "greatest slowdown": round(self.slowdown.largest, 2),
            "l2 slowdown": round(self.slowdown.l2, 1),
            "staleness": round(self.staleness.mean, 4),
            "busy": round(self.busy.mean, 3),
            "mean decision ms": round(1000 * self.decision.mean, 3),
        }


def run(scale: Scale) -> Result:
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session(cores=1)
        try:
            return _result(PolicyBench(spark, Path(folder), SIZES[scale]))
        finally:
            spark.stop()


def _result(bench: PolicyBench) -> Result:
    felt = {name: PolicyMeasure() for name in POLICIES}
    first: dict[str, pa.Table] = {}
    different = set()
    order = list(POLICIES)
    for name in order + order[::-1]:
        found, results = bench.under(name)
        felt[name].merge(found)
        first = first or results
        different |= {query for query, table in results.items() if not table.equals(first[query])}
    slowdown = {name: one.slowdown.mean for name, one in felt.items()}
    l2 = {name: one.slowdown.l2 for name, one in felt.items()}
    stale = {name: one.staleness.mean for name, one in felt.items()}
    overhead = decision_ms(units=1_000)
    claims = (
        at_most(
            "queries whose rows differ between policies", len(different), 0, ", ".join(sorted(different))
        ),
        at_most("mean slowdown, HNR / FCFS", slowdown["hnr"] / slowdown["fcfs"], 0.7),
        at_most("mean slowdown, HNR / RR", slowdown["hnr"] / slowdown["rr"], 0.7),
        at_most("l2 slowdown, BSD / the lowest", l2["bsd"] / min(l2.values()), 1.1, _least(l2)),
        at_most("staleness, FAS / the lowest", stale["fas"] / min(stale.values()), 1.1, _least(stale)),
        at_most("ms to decide between 1 000 units, median", max(overhead.values()), 1, "the slowest policy"),
    )
    figures = {
        "how": f"{QUERIES} queries, one core, groups of {bench.sizes.rows} rows every {bench.gap_s:.3g} s on "
        f"average, in bursts; policies in turns, forwards and backwards",
        "costs": bench.costs(),
        "policies": {name: one.figures() for name, one in felt.items()},
        "median ms to decide between 1 000 units": overhead,
    }
    return Result(claims, figures)


def _least(measured: Mapping[str, float]) -> str:
    return f"the lowest is {min(measured, key=lambda name: measured[name])}"


class PolicyBench:
    """Measures what units cost, records arrivals that load them, and replays those under each policy."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: PolicySizes, count: int = QUERIES) -> None:
        self.sizes = sizes
        self._spark = spark
        self._folder = folder
        self._queries = queries(count, SEED)
        self._turns = itertools.count()
        self._known = self._calibrate()
        work_s = sum(a + b * sizes.rows for a, b in self.costs().values())
        self.gap_s = work_s / LOAD
        self._recording = Recording.make(folder / "arrivals", sizes.groups, sizes.rows, self.gap_s, SEED)

    @contextmanager
    def _mill(self, name: str, policy: str = "fcfs") -> Iterator[Mill]:
        with Mill(self._spark, self._folder / name, cells=1, policy=policy) as mill:
            mill.execute(script(self._queries))
            mill.open()
            yield mill

    def _calibrate(self) -> dict[str, dict[str, Any]]:
        """Run every unit alone over groups of several sizes, some of one row; what is then known of it.

        The first groups only warm the workers and the JVM up.
        """
        with self._mill("calibration") as mill:
            for epoch, share in enumerate((*_WARM_UP, *_MEASURED)):
                if epoch == len(_WARM_UP):
                    for unit in mill.dispatcher.units.values():
                        unit.statistics.cost = BatchCost()
                admit(mill, group(epoch, max(1, round(self.sizes.rows * share)), SEED))
                mill.dispatcher.run_all()
            return learned(mill)

    def costs(self) -> dict[str, tuple[float, float]]:
        """a and b of each query's unit, in seconds."""
        return {
            query: (known["cost"]["overhead"], known["cost"]["per_row"])
            for query, known in self._known.items()
        }

    def under(self, policy: str) -> tuple[PolicyMeasure, dict[str, pa.Table]]:
        """One turn of a policy: what was felt, and the queries' rows."""
        deliveries = Deliveries()
        with self._mill(f"turn-{next(self._turns)}", policy) as mill:
            teach(mill, self._known)
            admit(mill, self._recording.table(0))
            mill.dispatcher.run_all()
            mill.dispatcher.decisions = Summary()
            deliveries.follow(mill)
            with recording() as stages:
                began = time.time()
                mill.dispatcher.start()
                came = replay(mill, self._recording)
                wait_until_read(mill, list(deliveries.found))
                ended = time.time()
            mill.dispatcher.stop()
            results = {name: _rows(query.to_arrow()) for name, query in mill.queries.items()}
            felt = self._felt(deliveries, came)
            felt.busy.add(_busy_s(stages) / (ended - began))
            felt.decision.merge(mill.dispatcher.decisions)
            return felt, results

    def _felt(self, deliveries: Deliveries, came: Floats) -> PolicyMeasure:
        felt, stale = PolicyMeasure(), []
        costs = self.costs()
        for name, found in deliveries.found.items():
            epochs, counts, at = (np.array(column) for column in zip(*found, strict=True))
            took = at - came[epochs.astype(int)]
            felt.response.add(took, counts)
            a, b = costs[name]
            felt.slowdown.add(took / (a + b), counts)
            felt.group_slowdown.add(took / (a + b * self.sizes.rows), counts)
            missing = StaleTime()
            for departure in sorted(set(at.tolist())):
                missing.add_batch(came[epochs[at == departure].astype(int)], departure)
            stale.append(missing.stale)
        # The same span for all policies: that of the recording.
        span = float(self._recording.arrivals[-1])
        felt.staleness.add(math.fsum(stale) / len(stale) / span)
        return felt


def _busy_s(stages: Stages) -> float:
    return sum(stage.seconds for name, stage in stages.items() if name.startswith(_BUSY))


def _rows(table: pa.Table) -> pa.Table:
    return table.sort_by([("epoch", "ascending"), ("number", "ascending")]).combine_chunks()


BENCHMARK = Benchmark("Policies for 30 queries on Spark, each at what it is for", run)

"""Benchmark of load shedding: twice the capacity of a core, with and without a budget.

Eight expensive queries run on one core. A first phase at half of the capacity gives normal response times.
Then rows arrive so fast that even the work per row alone, without any overhead, would take twice the
available time. This phase runs without a budget, and with a lag of 1.5 times the normal 99th percentile. A
second part compares the accuracy of temporal queries, whose tuples differ in value: memory reduced by the
cost of losing a tuple, and memory reduced at random to the same size. A third part compares bytes of state
with budgets in bytes (`shed_bytes`).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from slicemill.api.mill import Mill
from slicemill.kernels.arrays import Floats
from slicemill.lifecycle.query import LiveRows
from slicemill.runtime.spark_session import local_session
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.hashing import CLASSES, LoadQuery, admit, group, learned, script, teach
from slicemill_lab.bench.measuring.waiting import wait_until_read
from slicemill_lab.bench.shed_bytes import against_budgets
from slicemill_lab.claims import at_least, at_most, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.shed.runs import PROBABILITIES, RATIOS, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERIES = 8
CALM = 0.5
OVERLOAD = 2.0
LAG = 1.5  # relative to the 99th percentile in the calm phase
SEED = 11


@dataclass(frozen=True, slots=True)
class ShedSizes:
    rows: int  # of a group
    calm: int  # groups
    overload: int
    settling: int  # first groups of the overload, not measured, in which the controller adapts


SIZES: Mapping[Scale, ShedSizes] = {
    "small": ShedSizes(4_000, 12, 40, 10),
    "full": ShedSizes(4_000, 60, 240, 40),
}


@dataclass(frozen=True, slots=True)
class ShedMeasure:
    """Response times of all results in seconds, and counts of dropped tuples."""

    responses: Floats
    arrived: int
    dropped: int

    def percentile(self, which: float) -> float:
        return float(np.percentile(self.responses, which))

    def figures(self) -> dict[str, Any]:
        return {
            "results": len(self.responses),
            "p50 s": round(self.percentile(50), 3),
            "p99 s": round(self.percentile(99), 3),
            "longest s": round(float(self.responses.max()), 3),
            "tuples dropped": round(self.dropped / self.arrived, 3) if self.arrived else 0.0,
        }


@dataclass
class Deliveries:
    """Results as subscribers receive them: group, number of rows and time."""

    found: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)

    def follow(self, mill: Mill) -> None:
        for name, query in mill.queries.items():
            mine = self.found.setdefault(name, [])

            def receive(live: LiveRows, mine: list[tuple[int, int, float]] = mine) -> None:
                now = time.time()
                epochs, counts = np.unique(live.table.column("epoch").to_numpy(), return_counts=True)
                mine.extend(zip(epochs.tolist(), counts.tolist(), [now] * len(epochs), strict=True))

            query.subscribe(receive)


def run(scale: Scale) -> Result:
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as folder:
        spark = local_session(cores=1)
        try:
            figures, ratio = _overloaded(ShedBench(spark, Path(folder), SIZES[scale]))
        finally:
            spark.stop()
    by_cost, by_chance = (table(name, PROBABILITIES, scale, SEED) for name in ("CALS", "RAND"))
    gains = [a - b for p in PROBABILITIES for a, b in zip(by_cost[p], by_chance[p], strict=True)]
    kept_to, budgets = against_budgets(scale)
    claims = (
        timed(at_most("p99 response at twice the load with a budget / when calm", ratio, 2)),
        at_least(f"accuracy by cost less that by chance: the least of {len(gains)} cells", min(gains), 0),
        *kept_to,
    )
    accuracy = {"ratios of memory": list(RATIOS), "by cost": by_cost, "by chance": by_chance}
    return Result(claims, figures | {"accuracy": accuracy, "bytes": budgets})


def _overloaded(bench: ShedBench) -> tuple[dict[str, Any], float]:
    calm = bench.under("calm", bench.calm_gap_s, bench.sizes.calm)
    lag_s = LAG * calm.percentile(99)
    gap_s = bench.row_work_s / OVERLOAD
    without = bench.under("without", gap_s, bench.sizes.overload)
    shed = bench.under("shed", gap_s, bench.sizes.overload, lag_s)
    figures = {
        "how": f"{QUERIES} queries on one core, groups of {bench.sizes.rows} rows; one every "
        f"{bench.calm_gap_s:.3g} s when calm, every {gap_s:.3g} s under load; lag {lag_s:.3g} s",
        "calm": calm.figures(),
        "overload without a budget": without.figures(),
        "overload with a budget": shed.figures(),
    }
    return figures, shed.percentile(99) / calm.percentile(99)


class ShedBench:
    """Measures the cost of a group of rows, and feeds groups at a steady rate."""

    def __init__(self, spark: SparkSession, folder: Path, sizes: ShedSizes) -> None:
        self.sizes = sizes
        self._spark = spark
        self._folder = folder
        self._queries = [LoadQuery(f"q{n}", CLASSES - 1, 0.5, 10 + n) for n in range(QUERIES)]
        self._groups = [
            group(epoch, sizes.rows, SEED) for epoch in range(1 + max(sizes.calm, sizes.overload))
        ]
        self._known = self._calibrate()
        costs = [known["cost"] for known in self._known.values()]
        self.row_work_s = sum(cost["per_row"] for cost in costs) * sizes.rows
        self.calm_gap_s = (self.row_work_s + sum(cost["overhead"] for cost in costs)) / CALM

    @contextmanager
    def _mill(self, name: str, lag_s: float | None = None) -> Iterator[Mill]:
        options = "" if lag_s is None else f" WITH (lag = '{lag_s:.3f} s')"
        queries = [replace(query, options=options) for query in self._queries]
        with Mill(self._spark, self._folder / name, subtasks=1) as mill:
            mill.execute(script(queries))
            mill.open()
            yield mill

    def _calibrate(self) -> dict[str, dict[str, Any]]:
        shares = (1, 0.5, 1, 2, 0.5, 1, 2, 1)
        with self._mill("calibration") as mill:
            for epoch, share in enumerate(shares):
                admit(mill, group(epoch, round(self.sizes.rows * share), SEED))
                mill.dispatcher.run_all()
            return learned(mill)

    def under(self, name: str, gap_s: float, groups: int, lag_s: float | None = None) -> ShedMeasure:
        deliveries = Deliveries()
        with self._mill(name, lag_s) as mill:
            teach(mill, self._known)
            admit(mill, self._groups[0])
            mill.dispatcher.run_all()
            deliveries.follow(mill)
            mill.dispatcher.start()
            came = self._arrive(mill, gap_s, groups)
            wait_until_read(mill, list(deliveries.found))
            mill.dispatcher.stop()
            sheds = [query.measured().shed for query in mill.queries.values()]
        first = self.sizes.settling if groups == self.sizes.overload else 1
        responses = [
            np.full(count, at - came[epoch])
            for found in deliveries.found.values()
            for epoch, count, at in found
            if epoch >= first
        ]
        counted = [shed for shed in sheds if shed is not None]
        return ShedMeasure(
            np.concatenate(responses),
            sum(shed.arrived for shed in counted),
            sum(shed.dropped for shed in counted),
        )

    def _arrive(self, mill: Mill, gap_s: float, groups: int) -> list[float]:
        came = [0.0]
        began = time.time()
        for epoch in range(1, groups + 1):
            time.sleep(max(0.0, began + epoch * gap_s - time.time()))
            mill.dispatcher.check()
            came.append(time.time())
            admit(mill, self._groups[epoch])
        return came


BENCHMARK = Benchmark("Twice the load that can be borne, with a budget", run)

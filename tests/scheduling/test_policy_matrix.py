"""Policy matrix in virtual time: each policy is best at its own metric (P6-P9, P30, P39)."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.kernels.arrays import Floats
from slicemill.metrics.quality_of_service import StaleTime
from slicemill.scheduling.statistics import BatchCost, Selectivity
from slicemill_lab.policies.registry import OBJECTIVES
from slicemill_lab.testbeds.arrivals import on_off
from support.engine import Clock, rows_as_table
from support.virtual_pool import VirtualPool

SECOND = 1_000_000
ROUND_S, OVERHEAD_S, CHEAPEST_S = 0.002, 0.003, 0.003
QUERIES, ARRIVALS, RECORDINGS, LOAD = 10, 20, 3, 0.9
PERCENTS = np.random.default_rng(36).integers(10, 101, QUERIES)
COSTS = [BatchCost(OVERHEAD_S, CHEAPEST_S * 2 ** (number % 5)) for number in range(QUERIES)]
SCRIPT = "CREATE STREAM s (number int, k int, x int, ts timestamp) ORDER BY ts;" + ";".join(
    f"CREATE QUERY q{n} AS SELECT number FROM (SELECT number, x, "
    f"count(*) OVER (PARTITION BY k + {n} ROWS 1 PRECEDING) AS c FROM s) AS w WHERE x <= {percent} AND c > 0"
    for n, percent in enumerate(PERCENTS)
)


class Turns:
    """Engine whose tasks take a given time; every policy gets the same arrivals."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock(SECOND)
        pool = VirtualPool(self.clock, ROUND_S)
        self.mill = Mill(home=folder, pool=pool, clock=self.clock, subtasks=1, read_sources=False)
        self.mill.execute(SCRIPT)
        self.mill.open()
        self.tasks = [self.mill.dispatcher.running.writers[f"q{n}"] for n in range(QUERIES)]
        pool.costs = {task.id: cost for task, cost in zip(self.tasks, COSTS, strict=True)}
        self.left: dict[str, list[tuple[Floats, float]]] = defaultdict(list)
        for name, query in self.mill.queries.items():

            def receive(table: pa.Table, name: str = name) -> None:
                self.left[name].append((table.column("number").to_numpy(), self.clock.now / SECOND))

            query.subscribe(receive)
        self.feed(0, 1, self.clock.now)
        self.mill.dispatcher.run_all()

    def feed(self, number: int, x: int, came_us: int) -> None:
        """Handle the arrival of a row, possibly while the worker is busy."""
        now, self.clock.now = self.clock.now, came_us
        self.mill.feed("s", rows_as_table(self.mill, "s", [(number, number % 7, x, came_us)]))
        self.clock.now = now

    def under(self, policy: str, seed: int, load: float = LOAD) -> dict[str, float]:
        """Return the metrics of a policy, by objective."""
        self.mill.policy = policy
        for n, task in enumerate(self.tasks):
            task.statistics.cost = replace(COSTS[n])
            task.statistics.selectivities[f"q{n}"] = Selectivity(PERCENTS[n] / 100)
        random = np.random.default_rng(seed)
        work_s = sum(cost.ideal_time for cost in COSTS)
        came_us = self.clock.now + (SECOND * on_off(ARRIVALS, work_s / load, random)).astype(np.int64)
        x = random.integers(1, 101, ARRIVALS)
        self.left.clear()
        number = 0
        while number < ARRIVALS or any(task.pending() for task in self.tasks):
            while number < ARRIVALS and came_us[number] <= self.clock.now:
                self.feed(number, int(x[number]), int(came_us[number]))
                number += 1
            if not self.mill.dispatcher.run_some():
                self.clock.now = int(came_us[number])
        return self.felt(came_us / SECOND)

    def felt(self, came_s: Floats) -> dict[str, float]:
        responses, slowdowns, stale_s = [], [], 0.0
        for n, cost in enumerate(COSTS):
            missing = StaleTime()
            for numbers, at_s in self.left[f"q{n}"]:
                responses.append(at_s - came_s[numbers])
                slowdowns.append(responses[-1] / cost.ideal_time)
                missing.add_batch(came_s[numbers], at_s)
            stale_s += missing.stale
        response, slowdown = np.concatenate(responses), np.concatenate(slowdowns)
        return {
            "longest response": float(response.max()),
            "greatest slowdown": float(slowdown.max()),
            "mean response": float(response.mean()),
            "mean slowdown": float(slowdown.mean()),
            "l2 response": float(np.linalg.norm(response)),
            "l2 slowdown": float(np.linalg.norm(slowdown)),
            "staleness": stale_s,
        }


def test_each_policy_is_best_or_nearly_best_at_its_own_metric(tmp_path: Path) -> None:
    check_matrix(tmp_path, LOAD, RECORDINGS)


def check_matrix(folder: Path, load: float, recordings: int) -> None:
    turns = Turns(folder)
    with turns.mill:
        found = {
            policy: [turns.under(policy, seed, load) for seed in range(1, recordings + 1)]
            for policy in OBJECTIVES.values()
        }
    for objective, own in OBJECTIVES.items():
        lowest = [min(runs[n][objective] for runs in found.values()) for n in range(recordings)]
        ratios = {
            policy: median(runs[n][objective] / lowest[n] for n in range(recordings))
            for policy, runs in found.items()
        }
        assert ratios[own] <= 1.1, (objective, ratios)
        assert max(ratios.values()) > 1.2, "it matters which policy is asked"

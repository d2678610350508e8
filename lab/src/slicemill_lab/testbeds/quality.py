"""The two testbeds of the scheduling experiments: quality of service (P36) and quality of data (P37).

Queries have three operators of equal cost K·2^i. The scale K follows from the utilisation. Selectivities are
predicates on tuple attributes that all queries share, so their outcomes are correlated (A4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.charts.charts import Path, Stage
from slicemill_lab.simulator.workload import Load, Workload, draw
from slicemill_lab.testbeds.arrivals import in_bursts, on_off, poisson


@dataclass(frozen=True, slots=True)
class Testbed:
    """Workload with the cost class and selectivity of each query."""

    work: Workload
    cost_class: Int64s
    selectivity: Floats
    task_cost: float  # K

    __test__ = False  # tells pytest not to collect this class


def expected_costs(classes: Int64s, selectivity: Floats) -> Floats:
    """Return C̄ of each query in units of K: an operator of cost 2^i, then the share s, then s² (G2)."""
    costs: Floats = 2.0**classes * (1 + selectivity + selectivity**2)
    return costs


def quality_of_service(
    utilisation: float,
    seed: int,
    *,
    queries: int = 500,
    tuples: int = 3000,
    cost_classes: int = 5,
    selectivities: tuple[int, int] = (10, 100),
    independent: bool = False,
) -> Testbed:
    """P36: one ON/OFF stream feeds all queries, which select, join with a stored relation, and project."""
    random = np.random.default_rng([seed, 36])
    classes = random.integers(0, cost_classes, queries)
    percent = random.integers(selectivities[0], selectivities[1] + 1, queries)
    shares = percent / 100
    times = on_off(tuples, 1.0, random)
    task_cost = utilisation / float(expected_costs(classes, shares).sum())
    loads = []
    attributes = random.integers(1, 101, (2, tuples))
    for query in range(queries):
        if independent:
            attributes = random.integers(1, 101, (2, tuples))
        loads.append(
            _load(
                query, times, task_cost * 2.0 ** classes[query], shares[query], attributes <= percent[query]
            )
        )
    return Testbed(draw(loads, seed), classes, shares, task_cost)


def quality_of_data(
    utilisation: float,
    seed: int,
    *,
    queries: int = 250,
    streams: int = 10,
    tuples: int = 10_000,
    bursty: int = 5,
    cost_classes: int = 3,
    skew: float = 0.0,
    traces: bool = False,
    weights: Sequence[float] | None = None,
) -> Testbed:
    """P37: Poisson streams, some in bursts of ten; two predicates and a projection per query.

    With `traces` the streams are ON/OFF traffic. `weights` are the weights of queries (P33).
    """
    random = np.random.default_rng([seed, 37])
    classes = random.integers(0, cost_classes, queries)
    steps = np.arange(10, 0, -1)  # Zipf's first rank is a selectivity of 1.0 (A3)
    likely = 1.0 / np.arange(1, 11) ** skew
    percent = 10 * random.choice(steps, queries, p=likely / likely.sum())
    shares = percent / 100
    reads = np.arange(queries) % streams
    # At full load all streams together bring as much work as there is time: Σ C̄ in the mean gap of a stream.
    gap = float(expected_costs(classes, shares).sum()) / utilisation
    loads = []
    arrivals = [(on_off if traces else poisson)(tuples, gap, random) for _ in range(streams)]
    arrivals = [in_bursts(times) if stream < bursty else times for stream, times in enumerate(arrivals)]
    attributes = random.integers(1, 101, (streams, 2, tuples))
    for query in range(queries):
        stream = reads[query]
        passes = attributes[stream] <= percent[query]
        weight = weights[query] if weights else 1.0
        loads.append(
            _load(query, arrivals[stream], 2.0 ** classes[query], shares[query], passes, weight=weight)
        )
    return Testbed(draw(loads, seed), classes, shares, 1.0)


def _load(
    query: int,
    times: Floats,
    cost: float,
    share: float,
    passes: npt.NDArray[np.bool_],
    *,
    weight: float = 1.0,
) -> Load:
    """Return the load of a query. Select and join keep tuples that pass; the projection keeps all."""
    first = np.asarray(passes[0], np.int64)
    second = np.asarray(passes[1], np.int64)[first == 1]
    stages = (Stage("select", cost, share), Stage("join", cost, share), Stage("project", cost, 1.0))
    kept = int(second.sum())
    return Load(Path(f"q{query}", stages, weight), times, outputs=[first, second, np.ones(kept, np.int64)])

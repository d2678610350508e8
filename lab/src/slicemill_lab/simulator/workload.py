"""Workload of a simulated run: the true cost and outputs of each tuple at each operator, drawn in advance.

Operators process tuples in the order of their input (M1). So the i-th tuple of an operator is the same under
every policy, with the same cost and outputs. Runs under different policies can be compared tuple by tuple,
and an operator's queue is just two numbers. Times are floats of any task.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.charts.charts import Path

Sampler = Callable[[np.random.Generator, int], Floats]
"""Draws a number of costs."""
Cost = float | Floats | Sampler
"""One cost for all tuples, one per tuple in order, or a sampler."""


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """Path with the arrival times of its input, in order.

    `costs` has an entry per stage; by default, the stage's mean time holds for every tuple. `outputs` has the
    number of tuples that each tuple becomes at a stage; by default, it is drawn from the stage's selectivity.
    """

    path: Path
    arrivals: npt.ArrayLike
    costs: Sequence[Cost] | None = None
    outputs: Sequence[npt.ArrayLike | None] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Operators, numbered path by path.

    Operator k has the tuples `first_tuple[k]` to `first_tuple[k + 1]`.
    """

    paths: tuple[Path, ...]
    first_operator: Int64s
    first_tuple: Int64s
    cost: Floats
    outputs: Int64s
    arrival: Floats
    """Arrival in the system of the source tuple from which it descends."""
    parent: Int64s
    """The tuple at the previous operator that became this tuple; -1 at the leaf."""

    def operator(self, path: int, stage: int) -> int:
        return int(self.first_operator[path]) + stage

    def tuples(self, operator: int) -> slice:
        return slice(int(self.first_tuple[operator]), int(self.first_tuple[operator + 1]))

    @property
    def steps(self) -> int:
        """Total number of operator invocations on tuples."""
        return len(self.cost)


def draw(loads: Sequence[Load], seed: int) -> Workload:
    """Draw every cost and outcome. Each stage has its own generator, so that paths are independent."""
    costs: list[Floats] = []
    outputs: list[Int64s] = []
    arrivals: list[Floats] = []
    parents: list[Int64s] = []
    first = 0
    for number, load in enumerate(loads):
        arrival = np.asarray(load.arrivals, dtype=np.float64)
        if np.any(np.diff(arrival) < 0):
            raise ValueError(f"path {load.path.name!r}: arrivals must be in order of time")
        parent = np.full(len(arrival), -1, dtype=np.int64)
        for place, stage in enumerate(load.path.stages):
            random = np.random.default_rng([seed, number, place])
            cost = _costs(load.costs[place] if load.costs else float(stage.time), len(arrival), random)
            given = load.outputs[place] if load.outputs else None
            made = (
                _outputs(float(stage.selectivity), len(arrival), random) if given is None else _given(given)
            )
            if len(cost) != len(arrival) or len(made) != len(arrival):
                raise ValueError(
                    f"stage {stage.name!r} of path {load.path.name!r} handles {len(arrival)} tuples, "
                    f"but has {len(cost)} costs and {len(made)} outcomes"
                )
            costs.append(cost)
            outputs.append(made)
            arrivals.append(arrival)
            parents.append(parent)
            parent = np.repeat(np.arange(first, first + len(arrival)), made)
            first += len(cost)
            arrival = np.repeat(arrival, made)
    return Workload(
        paths=tuple(load.path for load in loads),
        first_operator=_offsets([len(load.path.stages) for load in loads]),
        first_tuple=_offsets([len(cost) for cost in costs]),
        cost=np.concatenate(costs),
        outputs=np.concatenate(outputs),
        arrival=np.concatenate(arrivals),
        parent=np.concatenate(parents),
    )


def _costs(cost: Cost, count: int, random: np.random.Generator) -> Floats:
    drawn = cost(random, count) if callable(cost) else cost
    costs = np.full(count, drawn) if np.isscalar(drawn) else np.asarray(drawn, dtype=np.float64)
    if not np.all(costs > 0):
        raise ValueError("every tuple must cost some time at every operator")
    return costs


def _outputs(selectivity: float, count: int, random: np.random.Generator) -> Int64s:
    whole = int(selectivity)
    return whole + (random.random(count) < selectivity - whole).astype(np.int64)


def _given(outputs: npt.ArrayLike) -> Int64s:
    return np.asarray(outputs, dtype=np.int64)


def _offsets(counts: Sequence[int]) -> Int64s:
    return np.concatenate(([0], np.cumsum(counts, dtype=np.int64))).astype(np.int64)

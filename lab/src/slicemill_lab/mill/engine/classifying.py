"""Classifiers on the engine: error rates, and cost of a time unit (mill-spark-E16 to E19).

Examples are a table, and features are a stream. The classifier learns its model from the examples, so the
model is an estimate. In the experiments on arrays it is the true model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.mill.classify import RANDOM, walked
from slicemill_lab.on_engine import fed_mill

_UNIT_US = 1_000_000
LOOK_S = 0.005


@dataclass(frozen=True, slots=True)
class ToClassify:
    """Examples and test data: values (time, n, k) and classes (time, n) of both."""

    values: Floats
    classes: Int64s
    tested: Floats
    truth: Int64s
    lags: int = 0

    @property
    def streams(self) -> int:
        return int(self.tested[0].size)


@dataclass(frozen=True, slots=True)
class Classified:
    """Share of wrong decisions, CPU seconds of a time unit, and number of observed values in it."""

    error: float
    cpu_s: float
    looked_at: float


def walks_to_classify(seed: int, train: int, test: int, features: int = 4) -> ToClassify:
    """Return the tasks of mill-E16."""
    values, model = walked(seed, train + test, features=features)
    classes = model.classify(values)
    return ToClassify(values[:train], classes[:train], values[train:], classes[train:])


def look(feature: str, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Observe values, with 5 ms of CPU time for each value."""
    del feature, keys
    until = time.thread_time() + LOOK_S * len(values)
    while time.thread_time() < until:
        pass
    return values


def classified(
    problem: ToClassify, policy: str, shed_percent: float, seed: int, *, looking_costs: bool = False
) -> Classified:
    """Classify all test units, with `shed_percent` of the streams not observed."""
    tasks, features = problem.tested.shape[1:]
    names = [f"f{number}" for number in range(features)]
    columns = ", ".join(f"{name} double" for name in names)
    capacity = max(1, round(problem.streams * (1 - shed_percent / 100)))
    observe = f", observe = '{__name__}:look'" if looking_costs else ""
    script = f"""
    CREATE STREAM s (task int, {columns}, ts timestamp) ORDER BY ts;
    CREATE TABLE examples (task int, {columns}, label int);
    CREATE CLASSIFIER c ON s({", ".join(names)}) PARTITION BY task LEARN label FROM examples EVERY 1 SECOND
      WITH (capacity = {capacity}, policy = '{policy}', lags = {problem.lags}, seed = {seed}{observe});
    CREATE QUERY q AS SELECT task, time, class, observed FROM c;"""
    units = len(problem.tested)
    with fed_mill(script) as mill:
        mill.tables.set_rows("examples", _examples(problem))

        def spent_s() -> float:
            return sum(unit.statistics.cpu_s for unit in mill.dispatcher.tasks.values())

        # The first unit compiles and learns, and is not measured. A unit is decided when the next one begins.
        before = 0.0
        for unit in range(units + 1):
            mill.feed("s", _rows(problem.tested[min(unit, units - 1)], unit, names))
            mill.dispatcher.run_all()
            before = spent_s() if unit == 1 else before
        spent = (spent_s() - before) / (units - 1)
        rows = [timed.row for timed in mill.queries["q"].timed_rows()]
    said = np.full((units, tasks), -1)
    looked = 0
    for task, at, label, observed in rows:
        said[int(str(at)) // _UNIT_US - 2, int(str(task))] = int(str(label))
        looked += int(str(observed))
    return Classified(float(np.mean(said != problem.truth)), spent, looked / units)


def errors_on_engine(
    problems: Sequence[ToClassify], policies: Sequence[str], shares: Sequence[int], seed: int
) -> dict[str, list[float]]:
    """Return the mean error over the problems by policy and share shed, and for full observation as `all`."""

    def mean(policy: str, share: float) -> float:
        return float(np.mean([classified(one, policy, share, seed).error for one in problems]))

    found = {policy: [mean(policy, share) for share in shares] for policy in policies}
    return {**found, "all": [mean(RANDOM, 0)]}


def _examples(problem: ToClassify) -> list[tuple[object, ...]]:
    """Return one row per time unit and task, in order of time."""
    return [
        (task, *map(float, problem.values[unit, task]), int(problem.classes[unit, task]))
        for unit in range(len(problem.values))
        for task in range(problem.values.shape[1])
    ]


def _rows(values: Floats, unit: int, names: Sequence[str]) -> pa.Table:
    """Return the values of a time unit, one second after those of the previous unit."""
    tasks = len(values)
    at = pa.array(np.full(tasks, (unit + 1) * _UNIT_US)).cast(pa.timestamp("us", tz="UTC"))
    features = {name: pa.array(values[:, place]) for place, name in enumerate(names)}
    return pa.table({"task": pa.array(range(tasks), pa.int32()), **features, "ts": at})

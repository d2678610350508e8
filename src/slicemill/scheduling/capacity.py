"""Capacity planning: measured costs of units, and required cores (§4.3).

A job is one round of the driver: messages to workers, their answers, and a commit. A job has one task per
unit, or one task per core for a unit that is partitioned by key. Jobs, tasks, and the delivery of each unit's
results have fixed costs that do not depend on the number of rows. Times are in seconds.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from slicemill.errors import SlicemillError
from slicemill.scheduling.statistics import BatchCost


@dataclass(frozen=True, slots=True)
class Output:
    """Log that a unit writes: query results or a derived stream."""

    log: str
    per_row: float
    """Results per input row."""
    is_query: bool = True
    weight: float = 1.0
    """Weight of a result."""
    within_s: float | None = None
    """Bound on the response time, or None."""


@dataclass(frozen=True, slots=True)
class UnitCost:
    id: str
    inputs: tuple[str, ...]
    outputs: tuple[Output, ...]
    splits: bool
    driver_s: float
    task_s: float
    row_s: float

    def tasks(self, cores: int) -> int:
        return cores if self.splits else 1

    def longest_s(self, rows: float, cores: int) -> float:
        """Return the duration of the longest task if rows are evenly distributed."""
        return self.task_s + self.row_s * rows / self.tasks(cores)


@dataclass(frozen=True, slots=True)
class Costs:
    """All units of a plan in topological order."""

    job_s: float
    units: tuple[UnitCost, ...]

    def alone(self, unit: UnitCost, cores: int) -> BatchCost:
        """Return the cost a + b·N of a job with only this unit."""
        per_row = unit.row_s / unit.tasks(cores)
        return BatchCost(self.job_s + unit.driver_s + unit.task_s, per_row)

    def together_s(self, runs: Sequence[tuple[UnitCost, float]], cores: int) -> float:
        """Return the duration of a job over units with row counts.

        Each task runs on the first free core.
        """
        free = [0.0] * cores
        for unit, rows in runs:
            for _ in range(unit.tasks(cores)):
                heapq.heapreplace(free, free[0] + unit.longest_s(rows, cores))
        return self.job_s + sum(unit.driver_s for unit, _ in runs) + max(free)

    def rates(self, streams: Mapping[str, float]) -> dict[str, float]:
        """Return the rows per second of each log, by stream rates."""
        rates = dict(streams)
        for unit in self.units:
            rows = unit_rate(unit, rates)
            rates.update({output.log: rows * output.per_row for output in unit.outputs})
        return rates

    def utilisation(self, streams: Mapping[str, float], cores: int) -> float:
        """Return the utilisation ρ: required work per second over available core seconds.

        A unit without partitions can use only one core. So the result is the maximum of two values: the work
        of all units over all cores, and the work of a single unit over the cores that it can use. Fixed costs
        of jobs and tasks are ignored, because larger batches reduce their share. If the result is below 1,
        units keep up once batches are large enough.
        """
        rates = self.rates(streams)
        work = {unit.id: unit_rate(unit, rates) * unit.row_s for unit in self.units}
        single = [work[unit.id] / unit.tasks(cores) for unit in self.units]
        return max([sum(work.values()) / cores, *single])

    def ideal_s(self, log: str, cores: int) -> float:
        """Return the ideal time T of a log.

        T is the time of a single row through all units that lead to the log, without other load.
        """
        for unit in self.units:
            if any(output.log == log for output in unit.outputs):
                before = max((self.ideal_s(given, cores) for given in unit.inputs), default=0.0)
                return before + self.alone(unit, cores).ideal_time
        return 0.0

    def streams(self) -> list[str]:
        """Return the logs that units read but no unit writes."""
        written = {output.log for unit in self.units for output in unit.outputs}
        return sorted({log for unit in self.units for log in unit.inputs} - written)

    def queries(self) -> list[tuple[UnitCost, Output]]:
        return [(unit, output) for unit in self.units for output in unit.outputs if output.is_query]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def unit_rate(unit: UnitCost, rates: Mapping[str, float]) -> float:
    return sum(rates.get(log, 0.0) for log in unit.inputs)


def costs_from_json(text: str, name: str) -> Costs:
    """Parse costs that `Costs.to_json` has written.

    `name` is the file name for error messages.
    """
    try:
        content = json.loads(text)
        return Costs(float(content["job_s"]), tuple(_units(content["units"])))
    except (ValueError, KeyError, TypeError):
        raise SlicemillError(
            f"{name} holds no measured costs; `slicemill simulate … --save {name}` writes them"
        ) from None


def _units(content: Iterable[dict[str, object]]) -> Iterable[UnitCost]:
    for unit in content:
        outputs, inputs = unit.pop("outputs"), unit.pop("inputs")
        if not isinstance(outputs, list) or not isinstance(inputs, list):
            raise TypeError
        yield UnitCost(inputs=tuple(inputs), outputs=tuple(Output(**output) for output in outputs), **unit)  # type: ignore[arg-type]

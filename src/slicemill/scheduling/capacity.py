"""What the units of a plan cost, as measured, and how much of some cores a load takes (§4.3).

A job is one round of the dispatcher: messages to workers, their answers, and a commit. It runs one task per
unit, or one per core where a unit's work is split by keys. A task costs something however few rows it has,
and so do the job itself and, for each unit, the delivery of its results. Times are seconds.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass

from slicemill.errors import SlicemillError
from slicemill.scheduling.adaptive import BatchCost


@dataclass(frozen=True, slots=True)
class Output:
    """A log that a unit writes: a query's results, or a derived stream that other units read."""

    log: str
    per_row: float
    """Results per row of input."""
    is_query: bool = True
    weight: float = 1.0
    """How much a result matters."""
    within_s: float | None = None
    """How late it may be."""


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
        """Of its tasks, where each has as many rows as the others."""
        return self.task_s + self.row_s * rows / self.tasks(cores)


@dataclass(frozen=True, slots=True)
class Costs:
    """All units of a plan, those that feed others first."""

    job_s: float
    units: tuple[UnitCost, ...]

    def alone(self, unit: UnitCost, cores: int) -> BatchCost:
        """What a policy learns of a unit: the time of a job that runs nothing else, as a + b·N."""
        per_row = unit.row_s / unit.tasks(cores)
        return BatchCost(self.job_s + unit.driver_s + unit.task_s, per_row)

    def together_s(self, runs: Sequence[tuple[UnitCost, float]], cores: int) -> float:
        """The time of a job that runs these units over so many rows each: a free core takes the next task."""
        free = [0.0] * cores
        for unit, rows in runs:
            for _ in range(unit.tasks(cores)):
                heapq.heapreplace(free, free[0] + unit.longest_s(rows, cores))
        return self.job_s + sum(unit.driver_s for unit, _ in runs) + max(free)

    def rates(self, streams: Mapping[str, float]) -> dict[str, float]:
        """Rows per second in every log, from those of the streams."""
        rates = dict(streams)
        for unit in self.units:
            rows = unit_rate(unit, rates)
            rates.update({output.log: rows * output.per_row for output in unit.outputs})
        return rates

    def utilisation(self, streams: Mapping[str, float], cores: int) -> float:
        """ρ: the work that rows bring each second over what the cores, or the one a unit can use, can do.

        What jobs and tasks cost in any case is left out: it shrinks as batches grow. So below 1 the units
        keep up, with batches as large as need be; from 1 on they do not.
        """
        rates = self.rates(streams)
        work = {unit.id: unit_rate(unit, rates) * unit.row_s for unit in self.units}
        single = [work[unit.id] / unit.tasks(cores) for unit in self.units]
        return max([sum(work.values()) / cores, *single])

    def ideal_s(self, log: str, cores: int) -> float:
        """T: how long a single row takes to a log through all units on its way, with nothing else there."""
        for unit in self.units:
            if any(output.log == log for output in unit.outputs):
                before = max((self.ideal_s(given, cores) for given in unit.inputs), default=0.0)
                return before + self.alone(unit, cores).ideal_time
        return 0.0

    def streams(self) -> list[str]:
        """The logs that are read and that no unit writes."""
        written = {output.log for unit in self.units for output in unit.outputs}
        return sorted({log for unit in self.units for log in unit.inputs} - written)

    def queries(self) -> list[tuple[UnitCost, Output]]:
        return [(unit, output) for unit in self.units for output in unit.outputs if output.is_query]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)


def unit_rate(unit: UnitCost, rates: Mapping[str, float]) -> float:
    return sum(rates.get(log, 0.0) for log in unit.inputs)


def costs_from_json(text: str, name: str) -> Costs:
    """Costs that were written by `to_json`, from a file of that name."""
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

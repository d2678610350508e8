"""Trials on Spark: measurement of unit costs at given rates.

Rows are fed to the streams in polls at given times, so every policy gets the same arrivals. The sources are
not polled during a trial.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.engine.mill import Mill
from slicemill.engine.unit import RunningUnit
from slicemill.engine.workers.inline import InlinePool
from slicemill.errors import SlicemillError
from slicemill.esl import SourceText
from slicemill.metrics.stages import Stages, recording
from slicemill.scheduling.adaptive import BatchCost
from slicemill.scheduling.capacity import Costs, UnitCost
from slicemill.simulate.trial_data import TrialStream, read_sample
from slicemill.simulate.trial_home import output_of
from slicemill.time import US, wall_clock_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAMPLED_S, _MOST_SAMPLED = 60.0, 200_000
# Sizes of polls, in multiples of the interval. The first ones fill windows and caches and are not counted.
_UNCOUNTED = (8, 1)
_COUNTED = (1, 4, 16, 1, 4, 16, 2, 8, 1, 4, 16)
# prefix of the stages that a worker reports per cell; the dispatcher uses the rest of a run's time
_RUN = "run: "

Progress = Callable[[str, float], None]
"""Callback with the current step and the completed share, from 0 to 1."""


@dataclass(slots=True)
class TrialClock:
    now: int

    def __call__(self) -> int:
        return self.now


@dataclass(slots=True)
class TrialSamples:
    """Sample rows of a script's streams, read once for all trials.

    A sample has the rows of a minute at the given rates.
    """

    rates: Mapping[str, float]
    folder: Path = Path()
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def of(self, mill: Mill) -> dict[str, TrialStream]:
        for name, running in mill.streams.items():
            if name not in self.tables:
                rows = max(1, min(round(self.rates.get(name, 0.0) * _SAMPLED_S), _MOST_SAMPLED))
                self.tables[name] = read_sample(running.stream, rows, self.folder)
        return {
            name: TrialStream(running.stream, self.tables[name]) for name, running in mill.streams.items()
        }


@contextmanager
def opened_mill(
    where: SparkSession | InlinePool, source: SourceText, clock: Callable[[], int], policy: str = "fcfs"
) -> Iterator[Mill]:
    """Open a mill in a temporary home with a script's queries.

    Its sources are not read and its sinks are removed, so a trial emits no results. On Spark, keyed units
    have as many cells as there are cores, as the cost model assumes.
    """
    if isinstance(where, InlinePool):
        opened = Mill(pool=where, policy=policy, clock=clock, cells=1, read_sources=False)
    else:
        cells = where.sparkContext.defaultParallelism
        opened = Mill(where, policy=policy, clock=clock, cells=cells, read_sources=False)
    with opened as mill:
        mill.execute(source)
        for sink in mill.sinks.names():
            mill.sinks.remove(sink)
        mill.policy = policy  # overrides a policy set by the script
        mill.open()
        if not mill.queries:
            raise SlicemillError(f"{source.name} has no continuous query, so there is nothing to plan for")
        yield mill


# -- costs ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Runs:
    """Measured seconds of one unit's runs.

    `cells` is the time of all cells by number of rows, `beside` that of message and commit, `delivery` that
    of the delivery of results.
    """

    cells: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    beside: list[float] = field(default_factory=list)
    delivery: list[float] = field(default_factory=list)
    rows_in: int = 0
    rows_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def per_row(self, log: str) -> float:
        return self.rows_out[log] / self.rows_in if self.rows_in else 0.0


def measure(
    where: SparkSession | InlinePool,
    source: SourceText,
    every_s: float,
    samples: TrialSamples,
    progress: Progress,
    counted: Sequence[int] = _COUNTED,
) -> Costs:
    """Measure the cost of each unit alone, over polls of several sizes.

    Time is virtual, so the measurement does not wait for rows.
    """
    clock = TrialClock(wall_clock_us())
    with opened_mill(where, source, clock) as mill:
        progress("reading rows to measure with", 0.0)
        streams = samples.of(mill)
        found = {unit.id: _Runs() for unit in mill.dispatcher.units.values()}
        sizes = (*_UNCOUNTED, *counted)
        for number, size in enumerate(sizes):
            progress("measuring what units cost", number / len(sizes))
            clock.now += int(size * every_s * US)
            for name, stream in streams.items():
                rows = round(samples.rates.get(name, 0.0) * size * every_s)
                if rows:
                    mill.feed(name, stream.rows(rows, clock.now))
            mill.dispatcher.admit_handed()
            with mill.dispatcher.paused():
                for unit in mill.dispatcher.units.values():
                    _time(mill, unit, found[unit.id] if number >= len(_UNCOUNTED) else _Runs())
        stop_if_failed(mill)
        return _fitted(mill, found)


def _time(mill: Mill, unit: RunningUnit, runs: _Runs) -> None:
    rows = sum(epoch.rows for epoch in unit.pending())
    if not rows:
        return
    logs = [mill.home.logs[log] for _, log in unit.plan.unit.outputs]
    heads = [log.head for log in logs]
    began = time.perf_counter()
    with recording() as stages:
        mill.dispatcher.catch_up(unit)
    took_s = time.perf_counter() - began
    cells_s = sum(stage.seconds for name, stage in stages.items() if name.startswith(_RUN))
    delivery_s = _seconds(stages, "deliver")
    runs.cells[rows].append(cells_s)
    # Cells run in parallel; the remaining time is for messages to and from workers and for the commit.
    runs.beside.append(took_s - cells_s / unit.cells - delivery_s)
    runs.delivery.append(delivery_s)
    runs.rows_in += rows
    for (_, name), log, head in zip(unit.plan.unit.outputs, logs, heads, strict=True):
        runs.rows_out[name] += sum(epoch.rows for epoch in log.epochs(after=head))


def _seconds(stages: Stages, name: str) -> float:
    return stages[name].seconds if name in stages else 0.0


def _fitted(mill: Mill, found: Mapping[str, _Runs]) -> Costs:
    units = []
    for unit in mill.dispatcher.units.values():
        runs = found[unit.id]
        cost = BatchCost(decay=1.0)
        # The median ignores single runs hit by a pause of the machine.
        for rows, seconds in runs.cells.items():
            cost.observe(rows, median(seconds))
        units.append(
            UnitCost(
                unit.id,
                unit.plan.unit.inputs,
                tuple(output_of(log, runs.per_row(log), mill.catalog) for _, log in unit.plan.unit.outputs),
                splits=unit.cells > 1,
                driver_s=median(runs.delivery) if runs.delivery else 0.0,
                task_s=cost.overhead / unit.cells,
                row_s=cost.per_row,
            )
        )
    beside = [seconds for runs in found.values() for seconds in runs.beside]
    if not beside:
        raise SlicemillError("no unit had anything to read; give --rate for the streams that queries read")
    return Costs(median(beside), tuple(units))


def stop_if_failed(mill: Mill) -> None:
    for name, query in mill.queries.items():
        if query.error is not None:
            raise SlicemillError(f"{name} failed on the rows of the trial: {query.error}")

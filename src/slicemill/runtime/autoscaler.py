"""Autoscaler: rescales units with busy cells, according to the cost model.

The cost model uses rates of rows and of join comparisons since the last measurement. A mill with a fixed
number of cells or a fixed placement has no autoscaler.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from slicemill.plan.placement import Placement
from slicemill.plan.rescale_decision import (
    BUSY,
    Hysteresis,
    UnitWork,
    calibrate_statistics,
    cheaper_placement,
)
from slicemill.runtime.rescale import Rescaler, can_change
from slicemill.runtime.units import RunningUnit
from slicemill.runtime.workers.sharing import Pool
from slicemill.time import SECOND_US

_LOOK_US = 2 * SECOND_US


@dataclass(slots=True)
class _UnitCounters:
    """Counters of a unit at the time of a measurement."""

    rows: dict[str, int]
    pairs: dict[str, int]
    cells_s: dict[int, float]


@dataclass(slots=True)
class Autoscaler:
    """Autoscaler of a mill: periodically measures all units and changes their placement."""

    replacing: Rescaler
    pool: Pool
    clock: Callable[[], int]
    _looked_us: int = 0
    _counted: dict[str, _UnitCounters] = field(default_factory=dict)
    _hysteresis: dict[str, Hysteresis] = field(default_factory=dict)

    def look(self) -> None:
        """Measure units, and apply placements that have long been better.

        The method may be called often. Measurements are _LOOK_US apart.
        """
        now_us = self.clock()
        elapsed_s = (now_us - self._looked_us) / SECOND_US
        if now_us - self._looked_us < _LOOK_US:
            return
        self._looked_us = now_us
        units, workers = self.replacing.dispatcher.running.units, len(self.pool.members())
        before, self._counted = self._counted, {unit.id: _unit_counters(unit) for unit in units}
        self._hysteresis = {unit.id: self._hysteresis.get(unit.id, Hysteresis()) for unit in units}
        for unit in list(units):
            known = before.get(unit.id)
            found = self._better_placement(unit, known, elapsed_s, workers) if known is not None else None
            wanted = self._hysteresis[unit.id].decide(found)
            if wanted is not None and self.replacing.rescale(unit, wanted):
                del self._counted[unit.id]  # counters restart with the new cells

    def _better_placement(
        self, unit: RunningUnit, before: _UnitCounters, elapsed_s: float, workers: int
    ) -> Placement | None:
        now = self._counted[unit.id]
        busy_s = [cpu_s - before.cells_s.get(cell, cpu_s) for cell, cpu_s in now.cells_s.items()]
        if workers < 2 or max(busy_s, default=0.0) < BUSY * elapsed_s:
            return None
        rates = {log: (rows - before.rows.get(log, rows)) / elapsed_s for log, rows in now.rows.items()}
        pairs = {join: (count - before.pairs.get(join, 0)) / elapsed_s for join, count in now.pairs.items()}
        plan, placement = unit.plan, Placement.of(unit.plan.exchanges)
        work = UnitWork(sum(busy_s) / elapsed_s, pairs)
        statistics = calibrate_statistics(plan.unit, plan.graph, placement, rates, work)
        unit_, graph = plan.unit, plan.graph
        return cheaper_placement(
            unit_, graph, placement, workers, statistics, lambda to: can_change(unit_, graph, to)
        )


def _unit_counters(unit: RunningUnit) -> _UnitCounters:
    statistics = unit.statistics
    cells_s = {cell: found.cpu_s for cell, found in statistics.cells.items()}
    return _UnitCounters(dict(statistics.rows_read), dict(statistics.compared), cells_s)

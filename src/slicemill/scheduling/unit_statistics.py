"""Run statistics of a unit, for policies and for display (P21).

The cost of a run over N rows is a + b·N, fitted to the unit's own runs. The time of a run is that of its
slowest cell, without waiting time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from slicemill.scheduling.adaptive import BatchCost, Selectivity
from slicemill.scheduling.cell_statistics import CellReport, CellStatistics
from slicemill.shedding.ages import Compared
from slicemill.storage.changes import Appended

# assumed overhead of a run, before the first one was measured
_FIRST_GUESS_S = 0.002


class RunReport(CellReport, Protocol):
    """Report of one cell about a run (`engine.work.RunDone`)."""

    @property
    def compared(self) -> Mapping[str, Compared]: ...  # by join
    @property
    def seconds(self) -> Mapping[str, float]: ...  # by stage
    @property
    def written(self) -> Mapping[str, Appended]: ...  # by log
    @property
    def rows(self) -> Mapping[str, int]: ...  # out of each node


@dataclass(slots=True)
class UnitStatistics:
    runs: int = 0
    rows_in: int = 0
    rows_out: int = 0
    cpu_s: float = 0.0
    rows_by_node: dict[str, int] = field(default_factory=dict)
    cost: BatchCost = field(default_factory=lambda: BatchCost(overhead=_FIRST_GUESS_S))
    selectivities: dict[str, Selectivity] = field(default_factory=dict)
    inputs: dict[str, float] = field(default_factory=dict)
    """Recent rows by input, as decaying sums."""
    cells: dict[int, CellStatistics] = field(default_factory=dict)
    rows_read: dict[str, int] = field(default_factory=dict)  # by input, of all runs
    compared: dict[str, int] = field(default_factory=dict)  # by join, of all runs and cells

    def add(self, rows: Mapping[str, int], outputs: Sequence[str], results: Sequence[RunReport]) -> None:
        """Count a run.

        `rows` are by input, and `outputs` are the logs that it may have written.
        """
        rows_in = sum(rows.values())
        for log, number in rows.items():
            self.inputs[log] = self.cost.decay * self.inputs.get(log, 0.0) + number
            self.rows_read[log] = self.rows_read.get(log, 0) + number
        # The first run includes compilation and imports, so it is not representative.
        if self.runs:
            self.cost.observe(rows_in, max(sum(result.seconds.values()) for result in results))
        self.runs += 1
        self.rows_in += rows_in
        written = dict.fromkeys(outputs, 0)
        for result in results:
            self.cpu_s += result.cpu_s
            self.cells.setdefault(result.cell, CellStatistics()).add(result)
            for log, appended in result.written.items():
                written[log] = written.get(log, 0) + appended.rows
            for join, found in result.compared.items():
                self.compared[join] = self.compared.get(join, 0) + found.total
            for node, made in result.rows.items():
                self.rows_by_node[node] = self.rows_by_node.get(node, 0) + made
        self.rows_out += sum(written.values())
        for log, made in written.items():
            self._count(log, rows_in, made)

    def _count(self, log: str, rows_in: int, rows_out: int) -> None:
        if rows_in and log not in self.selectivities:
            self.selectivities[log] = Selectivity(1.0, is_guess=True)
        if log in self.selectivities:
            self.selectivities[log].observe(rows_in, rows_out)

    def selectivity(self, log: str) -> float:
        """Return the rows written to a log per row read; 1 without data."""
        known = self.selectivities.get(log)
        return 1.0 if known is None else known.value

    def worth(self, log: str) -> float:
        """Return the weight of a row of one side of a join.

        The mean over the rows of all sides is 1. Each side's rows cause the same number of pairs in total,
        because each pair is caused by its later row. So rows of a side with fewer rows cause more results
        each (P23).
        """
        own = self.inputs.get(log, 0.0)
        return sum(self.inputs.values()) / (len(self.inputs) * own) if own else 1.0

    def plain(self) -> dict[str, Any]:
        """Return the part that survives a restart, as JSON values."""
        return {
            "cost": asdict(self.cost),
            "selectivities": {log: asdict(known) for log, known in self.selectivities.items()},
            "inputs": dict(self.inputs),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        if kept:
            self.cost = BatchCost(**kept["cost"])
            self.selectivities = {log: Selectivity(**known) for log, known in kept["selectivities"].items()}
            self.inputs = dict(kept["inputs"])

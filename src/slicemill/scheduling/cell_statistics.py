"""Statistics of one cell of a unit, for balancing, placement and display (S52)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Protocol


class CellReport(Protocol):
    """Report of a cell about a run (`engine.work.RunDone`)."""

    @property
    def cell(self) -> int: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def pairs(self) -> int: ...  # compared by joins
    @property
    def cpu_s(self) -> float: ...
    @property
    def bytes_read(self) -> int: ...
    @property
    def state_bytes(self) -> int: ...


@dataclass(slots=True)
class CellStatistics:
    """Sums since the cell was created in this process.

    `state_bytes` is the current size.
    """

    runs: int = 0
    rows: int = 0
    pairs: int = 0
    cpu_s: float = 0.0
    bytes_read: int = 0
    state_bytes: int = 0

    def add(self, report: CellReport) -> None:
        self.runs += 1
        self.rows += report.rows_in
        self.pairs += report.pairs
        self.cpu_s += report.cpu_s
        self.bytes_read += report.bytes_read
        self.state_bytes = report.state_bytes

    def plain(self) -> dict[str, Any]:
        return {**asdict(self), "cpu_s": round(self.cpu_s, 6)}

"""Work and results of one run of a task, summed over its subtasks.

The driver builds one record for each run, from the answers of the workers. Statistics, load control and
metrics of queries read only this record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slicemill.metrics.due_times import Arrivals
from slicemill.metrics.quality_of_service import IdealTime
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Comparisons


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtaskRecord:
    """Amount of work that one subtask did in one run."""

    subtask: int
    rows: int = 0  # number of rows that the subtask has read
    pairs: int = 0  # number of row pairs that joins have compared
    cpu_s: float = 0.0
    bytes_read: int = 0
    state_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Work and results of one run of a task. An abandoned run has read and written nothing.

    `committed_us`, `warm_us` and `ideal` are set when the run is committed. Results are warm-up results if
    their tuples arrived before `warm_us`.
    """

    task: str
    read: Mapping[str, int] = field(default_factory=dict)  # input -> number of rows read and not shed
    written: Mapping[str, int] = field(default_factory=dict)  # output -> number of rows written
    emitted: Mapping[str, int] = field(default_factory=dict)  # operator -> number of rows emitted
    failed: Mapping[str, str] = field(default_factory=dict)  # output log of a stopped query -> reason
    arrivals: Mapping[str, Arrivals] = field(default_factory=dict)  # output -> due times of its rows
    # Join -> comparisons of each subtask.
    compared: Mapping[str, Sequence[Comparisons]] = field(default_factory=dict)
    # Operator -> rows dropped by load shedding.
    sheds: Mapping[str, AccuracyReport] = field(default_factory=dict)
    subtasks: Sequence[SubtaskRecord] = ()
    seconds: float = 0.0  # duration of the run in its slowest subtask
    python_s: float = 0.0  # processor time in kernels (loops) that are not compiled yet
    collecting_s: float = 0.0  # processor time in garbage collection
    committed_us: int = 0
    warm_us: int = 0  # time by which the task and its upstream tasks had their first run
    # Output -> response time of its rows without other load.
    ideal: Mapping[str, IdealTime] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.read.values())

    @property
    def cpu_s(self) -> float:
        return sum(subtask.cpu_s for subtask in self.subtasks)

    @property
    def state_bytes(self) -> int:
        return sum(subtask.state_bytes for subtask in self.subtasks)

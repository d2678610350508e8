"""The dispatcher: one loop that runs, again and again, the units that the policy picks (DESIGN §2).

A unit can run when one of its logs has something new, or when time has come far enough to release what it
holds back. A unit that is not picked falls behind in its logs; nothing is lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from slicemill.errors import SlicemillError
from slicemill.runtime.cause import cause
from slicemill.runtime.policies import Chooser
from slicemill.runtime.stages import stage
from slicemill.runtime.steps import END
from slicemill.runtime.task import TaskResult
from slicemill.runtime.unit_run import RunningUnit, execute

if TYPE_CHECKING:
    from pyspark import SparkContext

Completeness = Callable[[str], int]
AfterRun = Callable[[RunningUnit, list[TaskResult]], None]


@dataclass
class Dispatcher:
    """`complete` says how far a log is complete; `after_run` sees every run that is committed.

    Asking how far a stream is complete may promise time, so it is asked only of units that run or wait.
    """

    context: SparkContext
    complete: Completeness
    clock: Callable[[], int]
    policy: Chooser
    after_run: AfterRun
    poll_s: float = 0.05
    at_once: int = 1
    units: dict[str, RunningUnit] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)
    _running: threading.Lock = field(default_factory=threading.Lock)
    _stop: bool = False
    _thread: threading.Thread | None = None
    failure: BaseException | None = None

    def notify(self) -> None:
        """Something is new in the logs."""
        with self.changed:
            self.changed.notify_all()

    def start(self) -> None:
        self._stop = False
        self._thread = threading.Thread(target=self._loop, name="slicemill-dispatcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the loop after the run that is under way."""
        self._stop = True
        self.notify()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Between two runs: the plan may be changed here."""
        with self._running:
            yield

    def catch_up(self, unit: RunningUnit) -> None:
        """Run a unit, while paused, until it has read all there is."""
        while unit.pending():
            self._run([unit])

    def run_all(self) -> None:
        """Run until no unit has anything left to do."""
        while self.run_some():
            pass

    def run_some(self) -> bool:
        """Run the units that the policy picks, as many at once as there are cores; False if none can run."""
        with self._running:
            ready = [unit for unit in self.units.values() if self._can_run(unit)]
            chosen: list[RunningUnit] = []
            while ready and len(chosen) < self.at_once:
                chosen.append(ready.pop(self.policy(ready)))
            if chosen:
                self._run(chosen)
            return bool(chosen)

    def _run(self, units: list[RunningUnit]) -> None:
        runs = [unit.begin(self._inputs_of(unit)) for unit in units]
        for run, results in zip(runs, execute(self.context, runs, self.clock), strict=True):
            with stage("deliver"):
                self.after_run(run.unit, results)

    def _inputs_of(self, unit: RunningUnit) -> Mapping[str, int]:
        return {log: self.complete(log) for log in unit.plan.unit.inputs}

    def _can_run(self, unit: RunningUnit) -> bool:
        if all(log in unit.failed for _, log in unit.plan.unit.outputs):
            return False
        if unit.pending():
            return True
        inputs = unit.plan.unit.inputs
        if unit.due is not None and min(self.complete(log) for log in inputs) >= unit.due:
            return True
        # The end of an input has to be told once, also to units that hold nothing: others read their logs.
        told = unit.told()
        return any(self.complete(log) == END and told.get(log) != END for log in inputs)

    def _loop(self) -> None:
        try:
            while not self._stop:
                if not self.run_some():
                    with self.changed:
                        self.changed.wait(self.poll_s)
        except BaseException as problem:  # the thread's last words, for whoever waits for it
            self.failure = problem
            self.notify()

    def check(self) -> None:
        if self.failure is not None:
            raise SlicemillError(f"the dispatcher stopped: {cause(self.failure)}") from self.failure

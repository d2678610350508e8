"""The dispatcher: one loop that runs, again and again, the units that the policy picks (DESIGN §2).

A unit can run when one of its logs has something new, or when time has come far enough to release what it
holds back. A unit that is not picked falls behind in its logs; nothing is lost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from slicemill.engine.board import Board, Goal
from slicemill.engine.cause import cause
from slicemill.engine.task import TaskResult
from slicemill.engine.unit_run import RunningUnit, execute
from slicemill.errors import SlicemillError
from slicemill.metrics.stages import stage
from slicemill.scheduling.dispatch import Chooser
from slicemill.scheduling.metrics import Summary
from slicemill.storage.log import StreamLog

if TYPE_CHECKING:
    from pyspark import SparkContext

Completeness = Callable[[str], int]
AfterRun = Callable[[RunningUnit, list[TaskResult]], None]


class Dispatcher:
    """`complete` says how far a log is complete; `after_run` sees every run that is committed."""

    def __init__(
        self,
        context: SparkContext,
        logs: Mapping[str, StreamLog],
        complete: Completeness,
        clock: Callable[[], int],
        chooser: Chooser,
        after_run: AfterRun,
        poll_s: float = 0.05,
    ) -> None:
        self.chooser = chooser
        self.changed = threading.Condition()
        self.failure: BaseException | None = None
        self.decisions = Summary()
        self.board = Board([], logs, {}, clock())
        self._context = context
        self._cores = context.defaultParallelism
        self._logs = logs
        self._complete = complete
        self._clock = clock
        self._after_run = after_run
        self._poll_s = poll_s
        self._running = threading.Lock()
        self._stop = False
        self._thread: threading.Thread | None = None

    @property
    def units(self) -> dict[str, RunningUnit]:
        return {unit.id: unit for unit in self.board.units}

    def replace(self, units: Iterable[RunningUnit], goals: Mapping[str, Goal]) -> None:
        """Run these units from now on, for the queries that have these goals; while paused."""
        self.board = Board(list(units), self._logs, goals, self._clock(), self.board)

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
        """Run the units that the policy picks, as many at once as cores allow; False if none can run."""
        with self._running:
            began = time.perf_counter()
            chosen = self._choose()
            if chosen:
                self.decisions.add(time.perf_counter() - began)
                self._run(chosen)
            return bool(chosen)

    def _choose(self) -> list[RunningUnit]:
        now = self._clock()
        self.board.refresh(now)
        positions, batches = self.board.ready(self._complete, now)
        ready = [self.board.units[position] for position in positions]
        tasks = [unit.plan.buckets for unit in ready]
        return [ready[place] for place in self.chooser.choose_job(batches, tasks, self._cores)]

    def _run(self, units: list[RunningUnit]) -> None:
        now = self._clock()
        backlog = self.board.backlog(self._cores)
        runs = [unit.begin(self._inputs_of(unit), now, backlog) for unit in units]
        for run, results in zip(runs, execute(self._context, runs, self._clock), strict=True):
            with stage("deliver"):
                self.board.ran(run.unit, self._clock())
                self._after_run(run.unit, results)

    def _inputs_of(self, unit: RunningUnit) -> Mapping[str, int]:
        return {log: self._complete(log) for log in unit.plan.unit.inputs}

    def _loop(self) -> None:
        try:
            while not self._stop:
                if not self.run_some():
                    with self.changed:
                        self.changed.wait(self._poll_s)
        except BaseException as problem:  # the thread's last words, for whoever waits for it
            self.failure = problem
            self.notify()

    def check(self) -> None:
        if self.failure is not None:
            raise SlicemillError(f"the dispatcher stopped: {cause(self.failure)}") from self.failure

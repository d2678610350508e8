"""Supervisor: a thread that keeps one worker running.

A supervisor submits a Spark job with one task repeatedly. Each worker has its own job, because Spark counts
task failures per job, and the fourth failure ends the job with all its tasks. Spark itself restarts the task
after the first failures of a job, on another executor if necessary.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from pyspark import InheritableThread, SparkContext

# A job that lasted at least so long resets the back-off.
_GOOD_S = 60.0
_LONGEST_PAUSE_S = 30.0
_FIRST_PAUSE_S = 0.25

Task = Callable[[Iterable[Any]], Iterable[Any]]
# Called after each job with the reason of its end (the result of its task, or its error), and True if another
# job follows.
Report = Callable[[str | None, bool], None]


def pause_s(failures: int) -> float:
    """Return the back-off after so many short jobs in a row.

    The back-off is 0 after the first short job, then doubles.
    """
    return 0.0 if failures < 2 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 2, 16))


class Supervisor:
    def __init__(self, context: SparkContext, group: str, what: str, task: Task, report: Report) -> None:
        self._context = context
        self._group = group
        self._what = what
        self._task = task
        self._report = report
        self._stopping = threading.Event()
        self._thread = InheritableThread(target=self._run, name=f"slicemill {what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Submit no more jobs; the current job continues."""
        self._stopping.set()

    def cancel(self) -> None:
        """Cancel the current job."""
        with contextlib.suppress(Exception):
            self._context.cancelJobGroup(self._group)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(pause_s(failures)):
            began = time.monotonic()
            reason = self._job()
            # Jobs without an error count too: a worker that cannot create its handler leaves regularly.
            failures = 0 if time.monotonic() - began >= _GOOD_S else failures + 1
            if self._stopping.is_set():
                return
            there = is_running(self._context)
            self._report(reason, there)
            if not there:
                return

    def _job(self) -> str | None:
        try:
            self._context.setJobGroup(self._group, f"slicemill {self._what}", interruptOnCancel=True)
            said = self._context.parallelize([0], 1).mapPartitions(self._task).collect()
        except Exception as error:
            return why(error)
        return str(said[0]) if said else None


def is_running(context: SparkContext) -> bool:
    """Return True if the context is not stopped and its JVM answers."""
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except Exception:
        return False


def why(error: BaseException) -> str:
    """Extract the cause of a failed job from Spark's long message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if ": " in line and not line.startswith(("at ", "File ", "Caused by"))]
    python = [line for line in causes if line.split(":")[0].endswith(("Error", "Exception", "Interrupt"))]
    told = [line for line in python if not line.startswith(("org.", "java.", "pyspark.", ": "))]
    chosen = told or causes or lines or [type(error).__name__]
    return chosen[0][:500]

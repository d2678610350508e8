"""Limit of processor time for one step of a run.

An example of a step is the filter of one query. A step that takes far longer than usual is interrupted. The
queries that need the step fail, and the other queries of its unit continue. The clock is the processor time
of the process, so that a busy machine ends no step. A timer signal interrupts Python code and regular
expressions of `re`. Machine code, such as Arrow's, is interrupted when it returns. If a call never returns,
the kernel kills the process, and the record of the step tells which queries fail (`engine.step_record`).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from numba.core.compiler_lock import global_compiler_lock

from slicemill.engine.step_record import StepPlace, StepRecord

_TICK_S = 0.5
# Part of the reason of each query that failed because a step took too long.
FAR_LONGER = "far more than usual"
# Limit of one call of machine code, as a multiple of the limit of a step.
_OF_ONE_CALL = 1.5


class StepOverran(BaseException):
    """Raised in a step that has taken too long.

    Not an Exception, so that the code of the step cannot handle it.
    """


class StepCancelled(StepOverran):
    """Raised in a step whose queries are all being dropped."""


class StepLimit:
    """Measures the processor time of the current step; `begin` resets the time.

    With a `record`, this process may be killed. `item` is the index of the run in its `message`.
    """

    def __init__(
        self, seconds: float, record: StepRecord | None = None, item: int = 0, message: int = 0
    ) -> None:
        self.seconds = seconds
        self._record = record
        self._item = item
        self._message = message
        self._spent_s = 0.0
        self._place: StepPlace | None = None

    def begin(self, step: int) -> None:
        """Start a step, given by its index in the unit."""
        self._spent_s, self._place = 0.0, StepPlace(self._item, step)
        if self._record is not None:
            self._record.begin(self._place)

    def end(self, *, deadly: bool = False) -> None:
        """End the step; code after it has no limit.

        A `deadly` step, which ends the process, stays recorded.
        """
        ended, self._place = self._place, None
        if ended is not None and self._record is not None and not deadly:
            self._record.end()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Interrupt overrunning steps inside the context.

        Only the main thread of a process can do that.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
        self._end_process_after(self.seconds * _OF_ONE_CALL)
        try:
            yield
        finally:
            self._end_process_after(0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _end_process_after(self, cpu_s: float) -> None:
        if self._record is not None:
            self._record.end_process_after(cpu_s)

    def _tick(self, _: int, __: FrameType | None) -> None:
        # The interpreter runs, so restart the timer of the kernel.
        self._end_process_after(self.seconds * _OF_ONE_CALL)
        compiles = global_compiler_lock.is_locked()  # type: ignore[no-untyped-call]
        if self._place is None or compiles:  # compiling a kernel happens once
            return
        self._spent_s += _TICK_S
        if self._spent_s > self.seconds:
            raise StepOverran
        if self._record is not None and self._record.is_cancelled(self._place, self._message):
            raise StepCancelled

"""The limit of processor time for one step of a run, such as the selection of one query.

A step that takes far longer than usual is interrupted: the queries behind it fail, and the others of its unit
go on. The clock is the processor time of the process, so that a busy machine ends no step. The signal of a
timer interrupts Python code, and regular expressions of `re`. Machine code, such as Arrow's, is interrupted
when it returns. Where one call of it does not return, the kernel ends the process, and the record of the step
says which queries fail (`engine.step_record`).
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
# One call of machine code may take so many times the limit of a step.
_OF_ONE_CALL = 1.5


class StepOverran(BaseException):
    """A step has taken too long. Not an Exception, so that the code of the step does not handle it."""


class StepCancelled(StepOverran):
    """A step is interrupted since all queries behind it are being dropped."""


class StepLimit:
    """Counts the processor time of the step that runs; `begin` starts from zero.

    With a `record` this process is one that may be ended. `item` is the place of the run in its `message`.
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
        """A step begins; `step` is its place in the unit."""
        self._spent_s, self._place = 0.0, StepPlace(self._item, step)
        if self._record is not None:
            self._record.begin(self._place)

    def end(self, *, deadly: bool = False) -> None:
        """The step has ended; what follows it has no limit. A step that ends the process stays noted."""
        ended, self._place = self._place, None
        if ended is not None and self._record is not None and not deadly:
            self._record.end()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Interrupt steps that overrun meanwhile; only the main thread of a process can do that."""
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
        # The interpreter is alive.
        self._end_process_after(self.seconds * _OF_ONE_CALL)
        compiles = global_compiler_lock.is_locked()  # type: ignore[no-untyped-call]
        if self._place is None or compiles:  # a kernel is compiled once
            return
        self._spent_s += _TICK_S
        if self._spent_s > self.seconds:
            raise StepOverran
        if self._record is not None and self._record.is_cancelled(self._place, self._message):
            raise StepCancelled

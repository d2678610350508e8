"""The limit of processor time for one step of a run, such as the selection of one query.

A step that takes far longer than usual is interrupted: the queries behind it fail, and the others of its unit
go on. The clock is the processor time of the process, so that a busy machine ends no step. The signal
reaches Python code, and regular expressions of `re`; machine code and Arrow are interrupted when they return.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from numba.core.compiler_lock import global_compiler_lock

_TICK_S = 0.5


class StepOverran(BaseException):
    """A step has taken too long. Not an Exception, so that the code of the step does not handle it."""


class StepLimit:
    """Counts the processor time of the step that runs; `begin` starts from zero."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._spent_s = 0.0
        self._running = False

    def begin(self) -> None:
        """A step begins."""
        self._spent_s, self._running = 0.0, True

    def end(self) -> None:
        """The step has ended; what follows it has no limit."""
        self._running = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Interrupt steps that overrun meanwhile; only the main thread of a process can do that."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _tick(self, _: int, __: FrameType | None) -> None:
        compiles = global_compiler_lock.is_locked()  # type: ignore[no-untyped-call]
        if self._running and not compiles:  # a kernel is compiled once
            self._spent_s += _TICK_S
            if self._spent_s > self.seconds:
                raise StepOverran

"""Processor time limit for computations in the driver.

The driver computes changes of tables and rows of views. If such a computation exceeds the limit, its thread
is interrupted by an asynchronous Python exception. Workers have their own limit (`runtime.step_limit`).
"""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType

from slicemill.errors import SlicemillError

COMPUTING_S = 60.0


class _Overran(BaseException):
    """Raised in a block that has exceeded its limit of processor time.

    It is no Exception, so that the block cannot catch it.
    """


class CpuTimeLimit:
    """Context manager that raises SlicemillError after too much processor time.

    >>> with CpuTimeLimit("the change"):
    ...     sum(range(10))
    45
    """

    def __init__(self, what: str, seconds: float | None = None) -> None:
        self._what = what
        self._seconds = COMPUTING_S if seconds is None else seconds
        self._done = threading.Event()
        self._raising = threading.Lock()
        self._raised = False

    def __enter__(self) -> None:
        thread = threading.get_ident()
        clock = time.pthread_getcpuclockid(thread)
        threading.Thread(
            target=self._watch, args=(thread, clock), name="slicemill computing limit", daemon=True
        ).start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        overran = kind is _Overran
        try:
            with self._raising:
                self._done.set()
        except _Overran:
            overran = True
            self._done.set()
        if self._raised and not overran:
            # The requested exception has not been raised yet, and is cancelled.
            _raise_in(threading.get_ident(), None)
        if overran:
            raise SlicemillError(
                f"{self._what} took more than {self._seconds:g} s of processor time and was ended; look for "
                "an expression that takes long, or let a continuous query compute it"
            ) from None

    def _watch(self, thread: int, clock: int) -> None:
        until_s = time.clock_gettime(clock) + self._seconds
        left_s = self._seconds
        # The thread sleeps for the remaining time, because processor time never exceeds real time.
        while not self._done.wait(left_s):
            with self._raising:
                if self._done.is_set():
                    return
                left_s = until_s - time.clock_gettime(clock)
                if left_s <= 0:
                    self._raised = True
                    _raise_in(thread, _Overran)
                    return


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    raised = ctypes.py_object(exception) if exception is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), raised)

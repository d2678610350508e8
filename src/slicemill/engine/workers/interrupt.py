"""Handling of Ctrl-C while workers run: PySpark's handler would cancel their jobs.

PySpark's handler cancels all jobs before it raises KeyboardInterrupt: that would end the workers in the
middle of their runs. While a pool runs, KeyboardInterrupt is raised and nothing else; who catches it stops
the pool.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Takes PySpark's handler out and puts it back; leaves any other one where it is."""

    def __init__(self) -> None:
        self._before: object = None

    def take(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if getattr(handler, "__module__", "").startswith("pyspark."):
            self._before = handler
            signal.signal(signal.SIGINT, _interrupt)

    def give_back(self) -> None:
        if self._before is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
        self._before = None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

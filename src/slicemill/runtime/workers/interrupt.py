"""Handling of Ctrl-C while workers run, instead of PySpark's handler.

PySpark's handler cancels all jobs before it raises KeyboardInterrupt, which would kill workers during their
runs. While a pool runs, Ctrl-C only raises KeyboardInterrupt. The code that catches the exception stops the
pool.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """Replaces PySpark's handler, and restores it later.

    Handlers of the program are not replaced.
    """

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

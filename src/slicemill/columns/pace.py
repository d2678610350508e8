"""Pace of a background thread, so that runs are not delayed.

A thread that runs Python code returns the interpreter to other threads only every 5 ms. A run that calls
100 Arrow functions, each of which releases the interpreter, would then take half a second longer. So a
background thread rests after each millisecond of work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep

_WORK_S, _REST_S = 0.001, 0.001


class _Pace(threading.local):
    """Time of the current thread's next rest; None for no rest."""

    rests_at: float | None = None


_pace = _Pace()


@contextmanager
def paced() -> Iterator[None]:
    """Let the current thread rest in `keep_pace`."""
    _pace.rests_at = perf_counter() + _WORK_S
    try:
        yield
    finally:
        _pace.rests_at = None


def keep_pace() -> None:
    """Rest if this thread has worked long enough."""
    if _pace.rests_at is not None and perf_counter() >= _pace.rests_at:
        sleep(_REST_S)
        _pace.rests_at = perf_counter() + _WORK_S

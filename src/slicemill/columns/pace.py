"""Pauses of background threads, so that they do not delay micro-batches.

A thread that runs Python code releases the interpreter lock only every 5 ms. A micro-batch that calls 100
Arrow functions, each of which releases the lock, would then take half a second longer. So a background thread
sleeps after each millisecond of work.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, sleep

_WORK_S, _REST_S = 0.001, 0.001


class _Pace(threading.local):
    """Time at which the current thread sleeps next, or None for a thread without pauses."""

    rests_at: float | None = None


_pace = _Pace()


@contextmanager
def paced() -> Iterator[None]:
    """Within this context, make the current thread sleep when it calls `keep_pace`."""
    _pace.rests_at = perf_counter() + _WORK_S
    try:
        yield
    finally:
        _pace.rests_at = None


def keep_pace() -> None:
    """Sleep if this thread is paced and has worked for a millisecond."""
    if _pace.rests_at is not None and perf_counter() >= _pace.rests_at:
        sleep(_REST_S)
        _pace.rests_at = perf_counter() + _WORK_S

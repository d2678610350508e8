"""Time spent in Python's garbage collection, by thread and in the whole process."""

from __future__ import annotations

import gc
import threading
import time


class _OfThread(threading.local):
    began = 0.0
    seconds = 0.0


class _OfProcess:
    """Collections of all threads.

    A process runs one collection at a time, in the thread whose allocation triggers it.
    """

    seconds = 0.0


_THREAD = _OfThread()
_PROCESS = _OfProcess()


def watch_collections() -> None:
    """Start measuring. Idempotent."""
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def collecting_seconds() -> float:
    """Return the CPU seconds of collections in this thread."""
    return _THREAD.seconds


def process_collecting_seconds() -> float:
    """Return the CPU seconds of collections in all threads.

    No thread runs Python code during a collection.
    """
    return _PROCESS.seconds


def _collected(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _THREAD.began = time.thread_time()
    else:
        took_s = time.thread_time() - _THREAD.began
        _THREAD.seconds += took_s
        _PROCESS.seconds += took_s

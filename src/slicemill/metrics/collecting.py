"""How long garbage collection of Python has taken: in this process, and in the thread that asks."""

from __future__ import annotations

import gc
import threading
import time


class _OfThread(threading.local):
    began = 0.0
    seconds = 0.0


class _OfProcess:
    """Collections are one at a time in a process, in whichever thread makes the object that is too much."""

    seconds = 0.0


_THREAD = _OfThread()
_PROCESS = _OfProcess()


def watch_collections() -> None:
    """Count from now on; once is enough."""
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def collecting_seconds() -> float:
    """The processor seconds that collections have taken in this thread, so far."""
    return _THREAD.seconds


def process_collecting_seconds() -> float:
    """Those in all threads of this process: none of them runs Python meanwhile."""
    return _PROCESS.seconds


def _collected(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _THREAD.began = time.thread_time()
    else:
        took_s = time.thread_time() - _THREAD.began
        _THREAD.seconds += took_s
        _PROCESS.seconds += took_s

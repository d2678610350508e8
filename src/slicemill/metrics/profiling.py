"""Profiling: time per stage between a source and a result.

    with recording() as stages:
        ...
    stages["commit"].seconds

Nothing is stored unless a recording is active. Seconds are wall-clock time. Workers run in parallel and
report with their replies; their times are added up.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class StageTime:
    times: int = 0
    seconds: float = 0.0


Stages = dict[str, StageTime]


@dataclass(slots=True)
class _Recorders:
    # Ingestion and the dispatcher run in different threads.
    lock: threading.Lock = field(default_factory=threading.Lock)
    active: list[Stages] = field(default_factory=list)


_recorders = _Recorders()


@contextmanager
def recording() -> Iterator[Stages]:
    """Record the time spent in this process, by stage."""
    stages: Stages = {}
    with _recorders.lock:
        _recorders.active.append(stages)
    try:
        yield stages
    finally:
        with _recorders.lock:
            _recorders.active = [other for other in _recorders.active if other is not stages]


def add_stage_times(seconds: Mapping[str, float]) -> None:
    """Add times of stages, for example those of a completed task."""
    if not _recorders.active:
        return
    with _recorders.lock:
        for stages in _recorders.active:
            for name, took in seconds.items():
                stage = stages.setdefault(name, StageTime())
                stage.times += 1
                stage.seconds += took


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Time a block as one stage."""
    began = time.perf_counter()
    try:
        yield
    finally:
        add_stage_times({name: time.perf_counter() - began})


# Time spent in Python's garbage collection, by thread and in the whole process.


class _ThreadGcTime(threading.local):
    began = 0.0
    seconds = 0.0


class _ProcessGcTime:
    """Collections of all threads.

    A process runs one collection at a time, in the thread whose allocation triggers it.
    """

    seconds = 0.0


_THREAD = _ThreadGcTime()
_PROCESS = _ProcessGcTime()


def watch_gc() -> None:
    """Start measuring. Idempotent."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def gc_seconds() -> float:
    """Return the CPU seconds of collections in this thread."""
    return _THREAD.seconds


def process_gc_seconds() -> float:
    """Return the CPU seconds of collections in all threads.

    No thread runs Python code during a collection.
    """
    return _PROCESS.seconds


def _on_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _THREAD.began = time.thread_time()
    else:
        took_s = time.thread_time() - _THREAD.began
        _THREAD.seconds += took_s
        _PROCESS.seconds += took_s

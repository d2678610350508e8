"""Profiling: time of each stage between a source and a result.

    with recording() as stages:
        ...
    stages["commit"].seconds

Times are recorded only inside `recording`. Seconds are wall-clock time. Workers send their times with their
answers. Since workers run in parallel, the sum may exceed the duration of the recording.
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
    """Record the time of each stage while the context is open."""
    stages: Stages = {}
    with _recorders.lock:
        _recorders.active.append(stages)
    try:
        yield stages
    finally:
        with _recorders.lock:
            _recorders.active = [other for other in _recorders.active if other is not stages]


def add_stage_times(seconds: Mapping[str, float]) -> None:
    """Add the times of stages to all open recordings, for example after a run."""
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
    """Measure the wall-clock time of a block as one stage of processing."""
    began = time.perf_counter()
    try:
        yield
    finally:
        add_stage_times({name: time.perf_counter() - began})


# The following functions measure Python's garbage collection, by thread and for the whole process.


class _ThreadGcTime(threading.local):
    began = 0.0
    seconds = 0.0


class _ProcessGcTime:
    """Time of garbage collection in all threads.

    A process runs one collection at a time, in the thread whose allocation triggers it.
    """

    seconds = 0.0


_THREAD = _ThreadGcTime()
_PROCESS = _ProcessGcTime()


def watch_gc() -> None:
    """Start to measure garbage collection. Idempotent."""
    if _on_collection not in gc.callbacks:
        gc.callbacks.append(_on_collection)


def gc_seconds() -> float:
    """Return the CPU seconds that garbage collections took in this thread."""
    return _THREAD.seconds


def process_gc_seconds() -> float:
    """Return the CPU seconds that garbage collections took in all threads.

    During a garbage collection, no thread runs Python code.
    """
    return _PROCESS.seconds


def _on_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        _THREAD.began = time.thread_time()
    else:
        took_s = time.thread_time() - _THREAD.began
        _THREAD.seconds += took_s
        _PROCESS.seconds += took_s

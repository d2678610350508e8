"""Profiling: the time between a source and a result, by stage.

    with recording() as stages:
        ...
    stages["commit"].seconds

Nothing is kept while nobody records. Seconds are of wall time; those of workers, which work side by side and
report when they answer, add up over workers.
"""

from __future__ import annotations

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
    # Ingest and the dispatcher are different threads.
    lock: threading.Lock = field(default_factory=threading.Lock)
    active: list[Stages] = field(default_factory=list)


_recorders = _Recorders()


@contextmanager
def recording() -> Iterator[Stages]:
    """What is spent in this process, by stage, from here on."""
    stages: Stages = {}
    with _recorders.lock:
        _recorders.active.append(stages)
    try:
        yield stages
    finally:
        with _recorders.lock:
            _recorders.active = [other for other in _recorders.active if other is not stages]


def spent(seconds: Mapping[str, float]) -> None:
    """Report what stages took, such as those of a task that ended."""
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
    """Time the block as one stage."""
    began = time.perf_counter()
    try:
        yield
    finally:
        spent({name: time.perf_counter() - began})

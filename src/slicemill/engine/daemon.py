"""Spark's Python worker daemon with what tasks need imported before it forks: a new worker starts warm.

Spark's worker looks through all it holds for garbage after every task. What is imported here is left out of
that: it cost some 30 ms of processor time, many times what a small task takes. The programs of hundreds of
units cost 100 ms, so after most tasks only what is young is looked at.

A worker whose reader is gone, because its batch was stopped midway, ends without a word: Spark's daemon would
print a trace on the terminal of the driver.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]


def without_last_words(worker: Worker) -> Worker:
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # At once: what is left in its buffers would fail, and say so, again.
            os._exit(1)

    return quiet


class Garbage:
    """What the daemon's loop takes for the garbage collector: it calls `collect` after every task."""

    def __init__(self, tasks_between_all: int = 32) -> None:
        self._tasks_between_all = tasks_between_all
        self._tasks = 0

    def collect(self) -> int:
        self._tasks += 1
        return gc.collect(1 if self._tasks % self._tasks_between_all else 2)


def run() -> None:
    # Where its loop looks them up.
    vars(daemon)["worker"] = without_last_words(daemon.worker)
    vars(daemon)["gc"] = Garbage()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    run()

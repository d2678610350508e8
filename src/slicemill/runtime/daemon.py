"""Spark's Python worker daemon with what tasks need imported before it forks: a new worker starts warm.

A worker collects garbage after every task. What is imported here is left out of that: looking through it cost
a task some 30 ms of processor time, many times what a small one takes.

A worker whose reader is gone, because its batch was stopped midway, ends without a word: Spark's daemon would
print a trace on the terminal of the driver.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable

from pyspark import daemon

import slicemill.runtime.ingest
import slicemill.runtime.task  # noqa: F401

Worker = Callable[[socket.socket, bool], int]


def without_last_words(worker: Worker) -> Worker:
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # At once: what is left in its buffers would fail, and say so, again.
            os._exit(1)

    return quiet


def run() -> None:
    vars(daemon)["worker"] = without_last_words(daemon.worker)  # where its loop looks it up
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    run()

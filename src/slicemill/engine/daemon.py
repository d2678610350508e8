"""Spark's Python worker daemon, with the modules of tasks imported before it forks, so workers start fast.

Spark puts `pyspark.zip` before everything else on the path. It holds no compiled files, so that each import
compiles the source anew. The same version is installed beside slicemill in the usual way: that one is taken.

Spark's worker looks through all it holds for garbage after every task. What is imported here is left out of
that: it cost some 30 ms of processor time, many times what a small task takes. The programs of hundreds of
units cost 100 ms, so after most tasks only what is young is looked at.

A worker whose reader is gone, because its batch was stopped midway, ends without a word: Spark's daemon would
print a trace on the terminal of the driver. One that has retired ends after its task instead of waiting for
another one.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import socket
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from slicemill.engine.workers.retire import is_retired

# What tasks import. Nothing here may start a thread: it would be missing in the processes that are forked.
PRELOADED = ("pyspark.worker", "slicemill.engine.task", "slicemill.engine.workers.worker")

Worker = Callable[[socket.socket, bool], int]

_KILLED_FIRST = 500
_ZIP = "pyspark.zip"
_VERSION = re.compile(r"""^__version__[^=]*=\s*["']([^"']+)""", re.MULTILINE)


def installed_first(path: list[str]) -> list[str]:
    """The path without pyspark.zip, if the same version is to be found behind it as a folder."""
    zips = [entry for entry in path if Path(entry).name == _ZIP and zipfile.is_zipfile(entry)]
    folders = (Path(entry) / "pyspark" / "version.py" for entry in path if entry not in zips)
    installed = next((file for file in folders if file.is_file()), None)
    if not zips or installed is None:
        return path
    wanted = _VERSION.search(installed.read_text())
    for entry in zips:
        with zipfile.ZipFile(entry) as packed:
            found = _VERSION.search(packed.read("pyspark/version.py").decode())
        if wanted is None or found is None or wanted[1] != found[1]:
            return path
    return [entry for entry in path if entry not in zips]


def without_last_words(worker: Worker) -> Worker:
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            status = worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # At once: what is left in its buffers would fail, and say so, again.
            os._exit(1)
        if is_retired():
            os._exit(status)
        return status

    return quiet


class SparseCollector:
    """Stands in for the `gc` module in the daemon's loop, which calls `collect` after every task."""

    def __init__(self, tasks_between_all: int = 32) -> None:
        self._tasks_between_all = tasks_between_all
        self._tasks = 0

    def collect(self) -> int:
        self._tasks += 1
        return gc.collect(1 if self._tasks % self._tasks_between_all else 2)


def be_killed_before_java() -> None:
    """Have the kernel end workers first when memory is short: they are replaced, the JVM is not."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_KILLED_FIRST))


def run() -> None:
    be_killed_before_java()
    sys.path[:] = installed_first(sys.path)
    from pyspark import daemon

    from slicemill.machine_code.numba_kernels import get_ready

    for module in PRELOADED:
        importlib.import_module(module)
    # Workers read machine code in a few milliseconds then.
    get_ready()
    # Where its loop looks them up.
    vars(daemon)["worker"] = without_last_words(daemon.worker)
    vars(daemon)["gc"] = SparseCollector()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    run()

"""Replacement of Spark's Python worker daemon, which preloads modules for a fast start of workers.

Spark puts `pyspark.zip` first on the path. The archive has no compiled files, so each import would compile
the source again. If the same version is installed as a folder, the daemon uses the folder.

Spark's worker runs a full garbage collection after each task. That would take some 30 ms for objects of the
preloaded modules, so these objects are frozen. It would take 100 ms for the programs of hundreds of tasks, so
only young objects are collected after most tasks.

If the reader of a worker has closed the connection, because its batch was stopped, the worker exits silently.
Spark's daemon would print a traceback on the terminal of the driver. A retired worker exits after its task
instead of waiting for the next task.
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

from slicemill.runtime.workers.retire import is_retired

# Modules that tasks import. The modules must not start threads, because a forked process has no threads.
PRELOADED = ("pyspark.worker", "slicemill.runtime.worker", "slicemill.runtime.workers.worker")

Worker = Callable[[socket.socket, bool], int]

_KILLED_FIRST = 500
_ZIP = "pyspark.zip"
_VERSION = re.compile(r"""^__version__[^=]*=\s*["']([^"']+)""", re.MULTILINE)


def remove_pyspark_zip(path: list[str]) -> list[str]:
    """Return the import path. Omit pyspark.zip if the same version is installed as a folder."""
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


def silence_broken_pipes(worker: Worker) -> Worker:
    def quiet(sock: socket.socket, authenticated: bool) -> int:
        try:
            status = worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            # The process exits at once, because flushing its buffers would fail and print again.
            os._exit(1)
        if is_retired():
            os._exit(status)
        return status

    return quiet


class SparseCollector:
    """Replacement of the `gc` module in the main loop of Spark's daemon."""

    def __init__(self, tasks_between_all: int = 32) -> None:
        self._tasks_between_all = tasks_between_all
        self._tasks = 0

    def collect(self) -> int:
        self._tasks += 1
        return gc.collect(1 if self._tasks % self._tasks_between_all else 2)


def be_killed_before_java() -> None:
    """Make the kernel's OOM killer prefer workers to the JVM.

    Killed workers are restarted. A killed JVM (Java process of Spark) is not restarted.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_KILLED_FIRST))


def run() -> None:
    be_killed_before_java()
    sys.path[:] = remove_pyspark_zip(sys.path)
    from pyspark import daemon

    from slicemill.kernels.numba_kernels import initialise_numba

    for module in PRELOADED:
        importlib.import_module(module)
    # Kernels (compiled loops) are loaded before forking, so that workers start in a few milliseconds.
    initialise_numba()
    # The main loop of Spark's daemon finds its worker function and `gc` as global names of its module.
    vars(daemon)["worker"] = silence_broken_pipes(daemon.worker)
    vars(daemon)["gc"] = SparseCollector()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    run()

"""Local Spark clusters on the loopback interface, with executors in separate processes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyspark

from slicemill.runtime.spark_session import WORKERS, ensure_java_home

EXECUTORS = 2

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
_DEPLOY = "org.apache.spark.deploy"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster: its master URL, environment variables for the driver, and worker processes."""

    master: str
    environment: Mapping[str, str]
    workers: tuple[int, ...]  # process ids; empty if workers run inside the driver

    def executors(self, driver: int) -> list[int]:
        """Return the process ids of the executors."""
        above = (*self.workers, driver)
        return [pid for process in above for pid in _descendants(process) if _is_executor(pid)]


@contextmanager
def local_cluster(folder: Path, cores: int) -> Iterator[Cluster]:
    """Yield a cluster whose master and two workers run in the driver's JVM, which starts faster."""
    # Workers write below the folder of the Spark installation, which may be read-only.
    spark = folder / "spark"
    spark.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (spark / entry.name).symlink_to(entry)
    yield Cluster(f"local-cluster[{EXECUTORS},{cores},1024]", {**_LOOPBACK, "SPARK_HOME": str(spark)}, ())


@contextmanager
def standalone(
    folder: Path, cores: int, executors: int = EXECUTORS, stay: int | None = None
) -> Iterator[Cluster]:
    """Start a standalone master and workers with one executor each. All processes end with the block.

    `stay` is the number of slots held by slicemill's long-running workers, by default all but one.
    """
    ensure_java_home()
    with ExitStack() as running:
        _, said = running.enter_context(
            _daemon("master.Master", ["--host", "127.0.0.1", "--port", "0"], "Starting Spark master at ")
        )
        url = said.split()[-1]
        started = [
            running.enter_context(
                _daemon(
                    "worker.Worker",
                    [
                        *("-h", "127.0.0.1", "-c", str(cores), "-m", "1g"),
                        *("-d", str(folder / f"worker-{number}"), url),
                    ],
                    "Successfully registered with master",
                )
            )
            for number in range(executors)
        ]
        # An executor that registers late would not be counted.
        slots = f"--conf {WORKERS}={stay or executors * cores - 1} pyspark-shell"
        yield Cluster(
            url, {**_LOOPBACK, "PYSPARK_SUBMIT_ARGS": slots}, tuple(process.pid for process, _ in started)
        )


@contextmanager
def _daemon(name: str, arguments: list[str], ready: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a daemon of the cluster, and yield it with the log line that reports readiness."""
    with subprocess.Popen(
        [str(_SPARK_CLASS), f"{_DEPLOY}.{name}", "--webui-port", "0", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **_LOOPBACK},
        start_new_session=True,
    ) as process:
        try:
            assert process.stderr is not None
            lines = iter(process.stderr)
            before = deque[str](maxlen=20)
            for line in lines:
                before.append(line)
                if ready in line:
                    break
            else:
                raise AssertionError(f"{name} did not start:\n{''.join(before)}")
            # Later output is ignored, but must be read so that the pipe does not block.
            threading.Thread(target=deque, args=(lines, 0), daemon=True).start()
            yield process, line
        finally:
            for pid in (process.pid, *_descendants(process.pid)):
                _kill(pid)


def _is_executor(pid: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _descendants(pid: int) -> list[int]:
    parents = _parents()
    children = [child for child, parent in parents.items() if parent == pid]
    return [*children, *(below for child in children for below in _descendants(child))]


def _parents() -> Mapping[int, int]:
    """Return the parent of every process."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # pid (name) state parent …; the name may contain any characters.
            found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

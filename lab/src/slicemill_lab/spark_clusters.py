"""Real Spark clusters on the loopback interface, from the pip wheel: executors are processes of their own."""

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

from slicemill.engine.java import ensure_java_home
from slicemill.engine.session import WORKERS

EXECUTORS = 2

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_LOOPBACK = {"SPARK_LOCAL_IP": "127.0.0.1"}
_DEPLOY = "org.apache.spark.deploy"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a driver needs to run on a cluster: its address, and what its environment must say."""

    master: str
    environment: Mapping[str, str]
    workers: tuple[int, ...]  # process ids; none where workers live in their driver

    def executors(self, driver: int) -> list[int]:
        """The process ids of the executors."""
        above = (*self.workers, driver)
        return [pid for process in above for pid in _descendants(process) if _is_executor(pid)]


@contextmanager
def local_cluster(folder: Path, cores: int) -> Iterator[Cluster]:
    """A master and two workers inside the driver's JVM: fewer processes to start, the same executors."""
    # Workers write where Spark is installed, which is not theirs to write to here.
    spark = folder / "spark"
    spark.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (spark / entry.name).symlink_to(entry)
    yield Cluster(f"local-cluster[{EXECUTORS},{cores},1024]", {**_LOOPBACK, "SPARK_HOME": str(spark)}, ())


@contextmanager
def standalone(
    folder: Path, cores: int, executors: int = EXECUTORS, stay: int | None = None
) -> Iterator[Cluster]:
    """A master and workers, on each of which runs an executor; all of their processes end with the block.

    `stay` is how many of the slots slicemill's workers hold: all but one, if it is not said.
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
    """A process of the cluster, and the line with which it says that it is ready."""
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
            # What it says later is of no interest, but must not fill the pipe.
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
    """Every process's parent."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # pid (name) state parent …; the name may hold anything.
            found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return

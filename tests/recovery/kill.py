"""Dying at a named step: every write of a driver or a worker goes through `LocalFiles`, and so through here.

A point names an operation on files, or a call of the runtime, and says which of its occurrences kills:
before, in the middle of, or after it. They are counted over all processes of a run. An order to die is a
file, so that workers which outlive a driver hear of the next one.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from psycopg import Transaction

from slicemill.ingest.intake import Intake
from slicemill.storage.files import LocalFiles

# Names the file with the order; set in the environment of drivers and of their JVM.
VARIABLE = "SLICEMILL_TEST_KILL"

DRIVER, WORKER = "driver", "worker"
BEFORE, TORN, AFTER = "before", "torn", "after"

# Of a stream's intake, which takes a batch; of the database, which ends a transaction.
ADMIT, COMMIT = "admit", "__exit__"
# Which argument of an operation is the file that it makes or removes.
OPERATIONS = {"write": 0, "link": 1, "replace": 1, "remove": 0}


# From where on a point counts.
ANYWHERE, RUNNING, DRAINING = "anywhere", "running", "draining"


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    process: str  # who gets there: the driver or a Python worker
    operation: str  # of LocalFiles, or one of those above
    path: str  # a pattern of the file's path from the home, or of the stream's name
    when: str = BEFORE
    nth: int = 1
    victim: str = DRIVER
    phase: str = RUNNING

    @property
    def counter(self) -> str:
        """The file that counts its occurrences."""
        return self.name.replace(" ", "-")


@dataclass(frozen=True, slots=True)
class Order:
    """The points of one run, in turn: all but the last kill workers, so that the run goes on.

    It says too who is the driver, whether its JVM goes with it, and in which folder to count.
    """

    points: tuple[Point, ...]
    home: str
    driver: int
    counters: str
    with_jvm: bool


def give(order: Order) -> None:
    path = Path(os.environ[VARIABLE])
    whole = path.with_suffix(".new")
    whole.write_text(json.dumps(asdict(order)))
    whole.replace(path)


def _given() -> Order | None:
    try:
        content = json.loads(Path(os.environ[VARIABLE]).read_text())
    except FileNotFoundError:
        return None
    return Order(**{**content, "points": tuple(Point(**point) for point in content["points"])})


def occurrences(counter: Path) -> int:
    return counter.stat().st_size if counter.exists() else 0


def watch(process: str) -> None:
    """From now on obey, as that kind of process."""
    for operation, place in OPERATIONS.items():
        _watch(process, LocalFiles, operation, functools.partial(_file, place))
    _watch(process, Intake, ADMIT, _stream)
    _watch(process, Transaction, COMMIT, _database)


def _file(place: int, home: str, _files: LocalFiles, *arguments: Any) -> str:
    return os.path.relpath(arguments[place], home)


def _stream(_home: str, intake: Intake, *_arguments: Any) -> str:
    return intake.stream.name


def _database(_home: str, *_arguments: Any) -> str:
    return "database"


def _watch(process: str, owner: type, operation: str, where: Callable[..., str]) -> None:
    original: Callable[..., Any] = getattr(owner, operation)

    @functools.wraps(original)
    def watched(*arguments: Any, **named: Any) -> Any:
        order = _given()
        if order is None or not order.points:
            return original(*arguments, **named)
        point = order.points[0]
        if (point.process, point.operation) != (process, operation):
            return original(*arguments, **named)
        if not re.search(point.path, where(order.home, *arguments)) or _count(order) != point.nth:
            return original(*arguments, **named)
        if point.when == TORN:
            files, path, data = arguments
            original(files, path, bytes(data)[: len(data) // 2])
        elif point.when == AFTER:
            original(*arguments, **named)
        return _die(order)

    setattr(owner, operation, watched)


def _count(order: Order) -> int:
    with (Path(order.counters) / order.points[0].counter).open("ab") as counter:
        fcntl.flock(counter, fcntl.LOCK_EX)
        counter.write(b".")
        counter.flush()
        return counter.tell()


def _die(order: Order) -> None:
    if order.points[0].victim == DRIVER:
        # A driver leads its process group, in which its JVM is; workers are in one of their own.
        (os.killpg if order.with_jvm else os.kill)(order.driver, signal.SIGKILL)
    else:
        give(replace(order, points=order.points[1:]))
    os.kill(os.getpid(), signal.SIGKILL)

"""Dying at a named step: whatever a driver or a worker writes, removes, sends or answers goes through here.

A point names an operation and what it is done to, and says which of its occurrences kills: before, in the
middle of, or after it. They are counted over all processes of a run. An order to die is a file, so that
workers which outlive a driver hear of the next one.
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

from slicemill.connectors.files.ledger import Ledger
from slicemill.runtime import worker as worker_module
from slicemill.runtime.messages import Forget, Item, Message, ReadStream, RunTask
from slicemill.storage.changes import unframe
from slicemill.storage.filesystem import LocalAppendFile, LocalFiles

# Names the file with the order; set in the environment of drivers and of their JVM.
VARIABLE = "SLICEMILL_TEST_KILL"

DRIVER, WORKER = "driver", "worker"
BEFORE, TORN, AFTER = "before", "torn", "after"

# On files, told by their path from the home. Records of the journal say too what they commit.
APPEND, CUT, WRITE, REPLACE, REMOVE = "append", "cut", "write", "replace", "remove"
# The names of files that were read, and the transactions of a database.
LEDGER, TRANSACTION = "ledger", "transaction"
# Of a worker, told by the tasks and streams: a message and its items, a checkpoint that is read, and a
# subtask that is taken over.
MESSAGE, ITEM, STATE, RESTORE = "message", "item", "state", "restore"

# From where on a point counts.
ANYWHERE, RUNNING, DRAINING = "anywhere", "running", "draining"


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    process: str  # who gets there: the driver or a worker
    operation: str
    where: str  # a pattern of what it is done to
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
    see = functools.partial(_watch, process)
    see(APPEND, LocalAppendFile, "write", _appended)
    see(CUT, LocalAppendFile, "cut", lambda home, file, _: _path(home, _opened(file)))
    see(WRITE, LocalFiles, "write", lambda home, _, path, __: _path(home, path))
    see(REPLACE, LocalFiles, "replace", lambda home, _, __, target: _path(home, target))
    see(REMOVE, LocalFiles, "remove", lambda home, _, path: _path(home, path))
    see(LEDGER, Ledger, "write", lambda home, ledger, *_: _path(home, ledger.path))
    see(TRANSACTION, Transaction, "__exit__", lambda *_: "database")
    see(MESSAGE, worker_module.Worker, "__call__", lambda _, __, message: _message(message))
    see(ITEM, worker_module.Worker, "_do", lambda _, __, item, ___: _item(item))
    see(STATE, worker_module, "read_checkpoint", lambda home, folder, _: _path(home, folder))
    see(RESTORE, worker_module.Worker, "_program", lambda _, __, item: _taken_over(item))


# -- what an operation is done to ---------------------------------------------------------------------------


def _path(home: str, path: Path | str) -> str:
    return os.path.relpath(path, home)


def _opened(file: LocalAppendFile) -> str:
    return str(Path(f"/proc/self/fd/{file._descriptor}").readlink())


def _appended(home: str, file: LocalAppendFile, data: Any) -> str:
    path = _path(home, _opened(file))
    if not path.startswith("journal/"):
        return path
    first = "" if os.fstat(file._descriptor).st_size else " first"
    return f"{path}{first} {_committed(bytes(data))}"


def _committed(line: bytes) -> str:
    """What a record is about: words that points ask for."""
    content = unframe(line)
    assert content is not None
    record = json.loads(content)
    words = [word for word in _PLAIN if word in record]
    words += [f"read {stream}" for stream in record.get("streams", {})]
    for task, fields in record.get("units", {}).items():
        told = fields if "placement" not in fields else ("outputs" if "newcomers" in fields else "placement",)
        words += [f"{word} {task}" for word, field in _BY_FIELD.items() if field in told]
    return ", ".join(words)


# Keys of a journal record other than streams and tasks, and the fields of a task that name an event.
_PLAIN = ("catalog", "created", "dropped_logs", "freed")
_BY_FIELD = {"new": "placement", "members": "outputs", "run": "due", "checkpoint": "checkpoint"}


def _message(message: Message) -> str:
    return ", ".join(_item(item) for item in message.items)


def _item(item: Item) -> str:
    if isinstance(item, Forget):
        return "forget"
    if isinstance(item, ReadStream):
        return f"{'flush' if item.flush else 'read'} {item.stream}"
    return f"{'run' if isinstance(item, RunTask) else 'checkpoint'} {item.task} {item.subtask}"


def _taken_over(item: RunTask) -> str:
    """How a worker gets a subtask: it has it, or restores it, or replays what came after a checkpoint too."""
    if item.restore is None:
        return f"known {item.task} {item.subtask}"
    replayed = any(span.epochs for span in item.restore.replay.values())
    return f"{'replayed' if replayed else 'restored'} {item.task} {item.subtask}"


# -- dying --------------------------------------------------------------------------------------------------


def _watch(process: str, operation: str, owner: Any, name: str, where: Callable[..., str]) -> None:
    original: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(original)
    def watched(*arguments: Any, **named: Any) -> Any:
        order = _given()
        if order is None or not order.points:
            return original(*arguments, **named)
        point = order.points[0]
        if (point.process, point.operation) != (process, operation):
            return original(*arguments, **named)
        if not re.search(point.where, where(order.home, *arguments)) or _count(order) != point.nth:
            return original(*arguments, **named)
        if point.when == TORN:
            *others, data = arguments
            original(*others, (data if isinstance(data, list) else bytes(data))[: len(data) // 2])
        elif point.when == AFTER:
            original(*arguments, **named)
        return _die(order)

    setattr(owner, name, watched)


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

"""Events of a worker pool, and the context of a handler."""

from __future__ import annotations

import importlib
import secrets
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, cast

from slicemill.errors import SlicemillError


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker has connected and created its handler; it accepts messages."""

    worker: int
    incarnation: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is gone, and its current message is lost.

    The incarnation is -1 if its task failed before it could connect. With `spark_stopped`, Spark runs no more
    tasks, so no worker will follow.
    """

    worker: int
    incarnation: int
    reason: str
    spark_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """Return value of the handler, or a `Failure`."""

    worker: int
    incarnation: int
    message: object
    sent_us: int  # when the answered message was sent, by the driver's clock


@dataclass(frozen=True, slots=True)
class Notice:
    """Unsolicited message of a worker's thread, such as new source data."""

    worker: int
    incarnation: int
    payload: object


Event: TypeAlias = WorkerJoined | WorkerLeft | WorkerAnswer | Notice


@dataclass(frozen=True, slots=True)
class Failure:
    """Exception of a handler.

    The worker continues unless it ran out of memory.
    """

    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Arguments of the factory of a worker's handler."""

    worker: int
    incarnation: int
    name: str  # unique for all time, so that files may be named after it
    notify: Callable[[object], None]  # from any thread
    resident: bool  # True if all messages to this worker reach the same process
    separate: bool = True  # False in the driver's process, which a worker must not kill


Handler: TypeAlias = Callable[[object], object]


def writer_name(worker: int, incarnation: int) -> str:
    """Return a unique name.

    Attempts restart at 0 in every session, hence the random part.
    """
    return f"w{worker}-{incarnation}-{secrets.token_hex(6)}"


def make_handler(path: str, context: WorkerContext) -> Handler:
    """Create a handler with the factory named by "package.module:factory"."""
    module, _, factory = path.partition(":")
    if not factory:
        raise SlicemillError(f"{path!r} does not name a factory; write package.module:factory")
    return cast(Handler, getattr(importlib.import_module(module), factory)(context))


def failure(error: BaseException) -> Failure:
    return Failure(
        "".join(traceback.format_exception_only(error)).strip(), "".join(traceback.format_exception(error))
    )

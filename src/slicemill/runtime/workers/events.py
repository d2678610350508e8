"""Events of a worker pool, and the context of a worker's message handler."""

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
    """A worker has connected and accepts messages."""

    worker: int
    incarnation: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker has ended, and its current message is lost.

    The incarnation is -1 if its task failed before the worker could connect. If `spark_stopped` is set, Spark
    runs no more tasks, so the worker is not restarted.
    """

    worker: int
    incarnation: int
    reason: str
    spark_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """Answer to a message: the handler's return value or a `Failure`."""

    worker: int
    incarnation: int
    message: object
    sent_us: int  # time at which the message was sent, by the driver's clock


@dataclass(frozen=True, slots=True)
class Notice:
    """Message that a worker sends on its own, for example about new rows of a source."""

    worker: int
    incarnation: int
    payload: object


Event: TypeAlias = WorkerJoined | WorkerLeft | WorkerAnswer | Notice


@dataclass(frozen=True, slots=True)
class Failure:
    """Exception that a worker's message handler has raised.

    The worker continues, unless its memory was exhausted.
    """

    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """Arguments for the factory of a worker's message handler."""

    worker: int
    incarnation: int
    name: str  # globally unique name for the files of the worker
    notify: Callable[[object], None]  # function that sends a notice; any thread may call it
    resident: bool  # True if all messages to this worker reach the same process
    separate: bool = True  # False if the worker runs in the driver's process, which must not be killed


Handler: TypeAlias = Callable[[object], object]


def writer_name(worker: int, incarnation: int) -> str:
    """Return a unique name for the files of a worker.

    Incarnations restart at 0 in every Spark session, so the name also has a random part.
    """
    return f"w{worker}-{incarnation}-{secrets.token_hex(6)}"


def make_handler(path: str, context: WorkerContext) -> Handler:
    """Create a message handler by a factory that is named as "package.module:factory"."""
    module, _, factory = path.partition(":")
    if not factory:
        raise SlicemillError(f"{path!r} does not name a factory; write package.module:factory")
    return cast(Handler, getattr(importlib.import_module(module), factory)(context))


def failure(error: BaseException) -> Failure:
    return Failure(
        "".join(traceback.format_exception_only(error)).strip(), "".join(traceback.format_exception(error))
    )

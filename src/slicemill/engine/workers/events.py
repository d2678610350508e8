"""Events that a pool reports to the dispatcher, and the context of a worker's handler."""

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
    """A worker is connected and has made its handler: it can be sent a message."""

    worker: int
    incarnation: int
    host: str
    pid: int


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is gone, with the message that it was sent, if there was one.

    The incarnation is -1 if it was never there: its task failed before it could connect. With
    `spark_stopped`, Spark runs no tasks any more, and no worker will follow.
    """

    worker: int
    incarnation: int
    reason: str
    spark_stopped: bool = False


@dataclass(frozen=True, slots=True)
class WorkerAnswer:
    """What the handler returned, or a `Failure`."""

    worker: int
    incarnation: int
    message: object
    sent_us: int  # when the message was sent that this answers, by the driver's clock


@dataclass(frozen=True, slots=True)
class Notice:
    """An unsolicited message of a worker's thread, such as new data at a source."""

    worker: int
    incarnation: int
    payload: object


Event: TypeAlias = WorkerJoined | WorkerLeft | WorkerAnswer | Notice


@dataclass(frozen=True, slots=True)
class Failure:
    """The exception that a handler raised. The worker lives on, unless its memory was short."""

    error: str
    traceback: str


@dataclass(frozen=True, slots=True)
class WorkerContext:
    """What a worker's handler is made with."""

    worker: int
    incarnation: int
    name: str  # that of no other process, now or later: files may be named after it
    notify: Callable[[object], None]  # from any thread
    resident: bool  # whether messages to this worker reach the same process until it leaves
    separate: bool = True  # False in the process of the driver, which a worker must not end


Handler: TypeAlias = Callable[[object], object]


def writer_name(worker: int, incarnation: int) -> str:
    """A name that no other process has. Attempts are counted anew in every session, hence the random part."""
    return f"w{worker}-{incarnation}-{secrets.token_hex(6)}"


def make_handler(path: str, context: WorkerContext) -> Handler:
    """Call the factory that "package.module:factory" names."""
    module, _, factory = path.partition(":")
    if not factory:
        raise SlicemillError(f"{path!r} does not name a factory; write package.module:factory")
    return cast(Handler, getattr(importlib.import_module(module), factory)(context))


def failure(error: BaseException) -> Failure:
    return Failure(
        "".join(traceback.format_exception_only(error)).strip(), "".join(traceback.format_exception(error))
    )

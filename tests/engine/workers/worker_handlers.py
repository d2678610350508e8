"""Handlers that do what workers may do, good and bad. Workers import this file alone."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from slicemill.runtime.workers.events import WorkerContext


class Unpicklable:
    def __reduce__(self) -> str:
        raise ValueError("this stays here")


class Unreadable:
    def __reduce__(self) -> tuple[object, ...]:
        return (int, ("not a number",))


def obedient(context: WorkerContext) -> Callable[[object], object]:
    """Answers (verb, argument)."""

    def notify(payload: object) -> None:
        threading.Thread(target=context.notify, args=(payload,)).start()

    def notify_and_wait(payload: object, file: str) -> str:
        notify(payload)
        hold(file)
        return "waited"

    def hold(file: str) -> None:
        # Until the test says so: nothing else tells a worker that is busy.
        while not Path(file).exists():
            time.sleep(0.005)

    def allocate() -> object:
        return bytearray(1 << 62)

    def fail(text: str) -> object:
        raise ValueError(text)

    verbs: dict[str, Callable[..., object]] = {
        "echo": lambda value: value,
        "size": len,
        "bytes": lambda size: b"x" * size,
        "who": lambda: (context.worker, context.incarnation, context.name, context.resident, os.getpid()),
        "raise": fail,
        "leave": sys.exit,
        "allocate": allocate,
        "exit": os._exit,
        "hang": lambda: time.sleep(3600),
        "hold": hold,
        "notify": notify,
        "notify_and_wait": notify_and_wait,
        "unpicklable": Unpicklable,
        "unreadable": Unreadable,
        "modules": lambda name: getattr(sys.modules.get(name), "__file__", None),
    }

    def handle(message: object) -> object:
        assert isinstance(message, tuple)
        verb, *arguments = message
        return verbs[verb](*arguments)

    return handle


def broken(context: WorkerContext) -> Callable[[object], object]:
    raise ValueError(f"worker {context.worker} has no handler")


def early(context: WorkerContext) -> Callable[[object], object]:
    """Gives notice while it is made."""
    context.notify("being made")
    return lambda message: message

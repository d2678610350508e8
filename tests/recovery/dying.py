"""A process that dies at a step, played in this one: from that step on no file operation happens any more.

What the program does after its death, such as the handling of exceptions, leaves no trace then, as after a
kill. Steps are the operations on the files of a home, in the order in which they happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from slicemill.runtime.worker import Worker
from slicemill.runtime.workers.inline import InlinePool
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.storage.filesystem import LocalAppendFile, LocalFiles

BEFORE, TORN, AFTER = "before", "torn", "after"

_STEPS = (
    (LocalAppendFile, "write"),
    (LocalAppendFile, "cut"),
    (LocalFiles, "append"),
    (LocalFiles, "write"),
    (LocalFiles, "replace"),
    (LocalFiles, "remove"),
    (LocalFiles, "make_folder"),
    (LocalFiles, "remove_folder"),
)


class OneThreadPool(InlinePool):
    """Workers in this process that write checkpoints in the calling thread.

    In a thread of its own, a checkpoint would die alone: the program would wait for its end, and would have
    further steps in an order that differs between runs.
    """

    def __init__(self, count: int = 2) -> None:
        super().__init__(count, HANDLER)

    def _made(self, worker: int) -> Worker:
        made = super()._made(worker)
        assert isinstance(made, Worker)
        made.in_background = lambda work: work()
        return made


class Died(BaseException):
    """The process is dead; only a test catches it."""


@dataclass
class Death:
    """Dies in step number `at`, before, in the middle of or after it; None: never."""

    at: int | None = None
    when: str = BEFORE
    steps: int = 0
    dead: bool = False
    journal_only: bool = False

    def step(self, operation: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.dead:
            raise Died
        if self.journal_only and not _is_record(arguments):
            return operation(*arguments, **named)
        self.steps += 1
        if self.steps - 1 != self.at:
            return operation(*arguments, **named)
        self.dead = True
        if self.when == AFTER:
            operation(*arguments, **named)
        elif self.when == TORN and isinstance(arguments[-1], (bytes, bytearray)):
            operation(*arguments[:-1], bytes(arguments[-1])[: len(arguments[-1]) // 2])
        raise Died


def _is_record(arguments: tuple[Any, ...]) -> bool:
    first = arguments[0]
    if not isinstance(first, LocalAppendFile) or len(arguments) < 2 or isinstance(arguments[1], int):
        return False
    return Path(f"/proc/self/fd/{first._descriptor}").readlink().suffix == ".records"


@contextmanager
def dying(death: Death) -> Iterator[None]:
    """Let the file operations of this process be steps of a death."""
    with pytest.MonkeyPatch.context() as patched:
        for owner, name in _STEPS:
            original = getattr(owner, name)

            def watched(*arguments: Any, _original: Callable[..., Any] = original, **named: Any) -> Any:
                return death.step(_original, arguments, named)

            patched.setattr(owner, name, watched)
        yield

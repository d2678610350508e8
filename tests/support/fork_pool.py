"""A pool of processes without Spark: each message is answered by a child of this process.

A child that dies is a worker that has left, as with `WorkerPool`. Nothing stays in the memory of a child, so
each run writes its state, as with `JobPool`.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection

from slicemill.runtime.workers.events import (
    Event,
    WorkerAnswer,
    WorkerContext,
    WorkerJoined,
    WorkerLeft,
    failure,
    make_handler,
    writer_name,
)
from slicemill.runtime.workers.sharing import HANDLER
from slicemill.time import wall_clock_us


class ForkPool:
    """The interface of `WorkerPool` with a process for each message."""

    resident = False

    def __init__(self, count: int) -> None:
        self.ended: list[int] = []  # the signals by which children have ended
        self._incarnations = [0] * count
        self._children: dict[int, tuple[int, Connection[bytes, bytes]]] = {}
        self._sent_us: dict[int, int] = {}
        self._woken, self._wake = os.pipe()
        self._ends: tuple[int, ...] = (self._woken, self._wake)
        os.set_blocking(self._wake, False)

    def start(self) -> None:
        """Nothing has to be started: processes come with messages."""

    def members(self) -> list[WorkerJoined]:
        return [self._joined(worker) for worker in range(len(self._incarnations))]

    def send(self, worker: int, message: object) -> None:
        near, far = Pipe(duplex=False)
        pid = os.fork()
        if not pid:
            self._answer(worker, message, far)
        far.close()
        self._children[worker] = pid, near
        self._sent_us[worker] = wall_clock_us()

    def resize(self, count: int) -> None:
        raise NotImplementedError

    def end_stuck(self, worker: int) -> None:
        with suppress(KeyError, ProcessLookupError):
            os.kill(self._children[worker][0], signal.SIGPROF)

    def wait(self, timeout_s: float | None) -> list[Event]:
        events: list[Event] = []
        with selectors.DefaultSelector() as selector:
            selector.register(self._woken, selectors.EVENT_READ)
            for worker, (_, near) in self._children.items():
                selector.register(near, selectors.EVENT_READ, worker)
            for key, _ in selector.select(timeout_s):
                if key.data is None:
                    os.read(self._woken, 4096)
                else:
                    events += self._ended(key.data)
        return events

    def wake(self) -> None:
        with suppress(BlockingIOError):
            os.write(self._wake, b"\0")

    def stop(self) -> None:
        for pid, near in self._children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            near.close()
        self._children.clear()
        for end in self._ends:
            os.close(end)
        self._ends = ()

    def _ended(self, worker: int) -> list[Event]:
        pid, near = self._children.pop(worker)
        try:
            answer: object = pickle.loads(near.recv_bytes())
        except EOFError:
            answer = None
        near.close()
        _, status = os.waitpid(pid, 0)
        if answer is not None:
            return [WorkerAnswer(worker, self._incarnations[worker], answer, self._sent_us[worker])]
        self.ended.append(os.WTERMSIG(status))
        left = WorkerLeft(worker, self._incarnations[worker], "its process ended")
        self._incarnations[worker] += 1
        return [left, self._joined(worker)]

    def _answer(self, worker: int, message: object, far: Connection[bytes, bytes]) -> None:
        """Answer a message and end; in the child."""
        try:
            incarnation = self._incarnations[worker]
            name = writer_name(worker, incarnation)
            context = WorkerContext(worker, incarnation, name, lambda _: None, resident=False)
            try:
                answer: object = make_handler(HANDLER, context)(message)
            except Exception as problem:
                answer = failure(problem)
            far.send_bytes(pickle.dumps(answer))
        finally:
            os._exit(0)

    def _joined(self, worker: int) -> WorkerJoined:
        return WorkerJoined(worker, self._incarnations[worker], "here", os.getpid())

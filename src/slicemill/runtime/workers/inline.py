"""Inline pool: workers without processes, for experiments with plans and for tests.

The handler of a worker runs in the thread that sends a message, so the driver never waits for an answer.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque

from slicemill.runtime.workers.events import (
    Event,
    Handler,
    Notice,
    WorkerAnswer,
    WorkerContext,
    WorkerJoined,
    WorkerLeft,
    failure,
    make_handler,
    writer_name,
)
from slicemill.time import wall_clock_us


class InlinePool:
    """Pool with the interface of `WorkerPool`, whose handlers run in this process."""

    resident = True

    def __init__(self, count: int, handler: str) -> None:
        self._handler = handler
        self._incarnations = [0] * count
        self._handlers: list[Handler] = [self._made(worker) for worker in range(count)]
        self._events: deque[Event] = deque()
        self._awake = threading.Event()

    def start(self) -> None:
        """Do nothing: the workers exist already."""

    def members(self) -> list[WorkerJoined]:
        return [self._joined(worker) for worker in range(len(self._handlers))]

    def send(self, worker: int, message: object) -> None:
        sent_us = wall_clock_us()
        try:
            answer = self._handlers[worker](message)
        except Exception as problem:
            answer = failure(problem)
        event = self.answered(WorkerAnswer(worker, self._incarnations[worker], answer, sent_us), message)
        if event is not None:
            self._events.append(event)
        self._awake.set()

    def answered(self, answer: WorkerAnswer, message: object) -> WorkerAnswer | None:  # noqa: ARG002
        """Return the answer that the driver receives.

        Subclasses may change or delay it.
        """
        return answer

    def lose(self, worker: int) -> None:
        """Reset a worker, as if its process had been killed."""
        self._events.append(WorkerLeft(worker, self._incarnations[worker], "lost"))
        self._incarnations[worker] += 1
        self._handlers[worker] = self._made(worker)
        self._events.append(self._joined(worker))

    def resize(self, count: int) -> None:
        """Add workers, or remove the last workers."""
        while len(self._handlers) > count:
            self._handlers.pop()
            gone = len(self._handlers)
            self._events.append(WorkerLeft(gone, self._incarnations[gone], "it was not wanted any more"))
        for worker in range(len(self._handlers), count):
            if worker == len(self._incarnations):
                self._incarnations.append(0)
            else:
                # A removed worker that is added again has a new process number and no state.
                self._incarnations[worker] += 1
            self._handlers.append(self._made(worker))
            self._events.append(self._joined(worker))
        self._awake.set()

    def end_stuck(self, worker: int) -> None:
        """Do nothing: the worker runs in the calling thread."""

    def wait(self, timeout_s: float | None) -> list[Event]:
        if not self._events:
            self._awake.wait(timeout_s)
        self._awake.clear()
        # Events are removed one by one, because other threads may append notices meanwhile.
        return [self._events.popleft() for _ in range(len(self._events))]

    def wake(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        """Do nothing: there are no processes to end."""

    def _made(self, worker: int) -> Handler:
        incarnation = self._incarnations[worker]

        def notify(payload: object) -> None:
            self._events.append(Notice(worker, incarnation, payload))
            self._awake.set()

        name = writer_name(worker, incarnation)
        context = WorkerContext(worker, incarnation, name, notify, resident=True, separate=False)
        return make_handler(self._handler, context)

    def _joined(self, worker: int) -> WorkerJoined:
        return WorkerJoined(worker, self._incarnations[worker], socket.gethostname(), os.getpid())

"""Job pool: sends messages to workers as ordinary Spark jobs.

The job pool is for clusters where tasks must not occupy slots permanently. All messages that were sent since
the last `wait` form one job, with one task per message. State in memory may be lost between messages, because
the next message to the same worker may reach another process. If a process dies, Spark retries its task once.
If the retry fails too, the worker has left. The other tasks of the job continue.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import queue
import secrets
import socket
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark import InheritableThread, SparkContext, TaskContext

from slicemill.runtime.workers.channel import ANSWER, MESSAGE, encode
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
from slicemill.runtime.workers.pool import Interrupts, is_running, job_failure_cause
from slicemill.runtime.workers.retire import retire
from slicemill.runtime.workers.worker import answer_message
from slicemill.time import wall_clock_us

# Number of attempts of a Spark task in which the message is handled.
# The second attempt may also be a speculative execution.
_ATTEMPTS = 2
_CANCEL_S = 10.0


@dataclass(frozen=True, slots=True)
class _SentMessage:
    worker: int
    incarnation: int
    message: bytes
    sent_us: int


@dataclass(frozen=True, slots=True)
class _JobAnswer:
    worker: int
    answer: bytes | None  # the value None means that the process died in all attempts
    notices: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Work:
    """Function that handles the message of one Spark task. It is pickled with the job."""

    pool: str
    handler: str
    limit_s: float

    def __call__(self, messages: Iterable[tuple[int, bytes]]) -> Iterator[_JobAnswer]:
        return iter([self._done(worker, message) for worker, message in messages])

    def _done(self, worker: int, message: bytes) -> _JobAnswer:
        task = TaskContext.get()
        assert task is not None
        if task.attemptNumber() >= _ATTEMPTS:
            return _JobAnswer(worker, None, ())
        with Path(os.devnull).open("w") as nowhere:
            faulthandler.dump_traceback_later(self.limit_s, exit=True, file=nowhere)
            try:
                made = _handler(self, worker, task.taskAttemptId())
                answer, lives = answer_message(made.handler, memoryview(message)[1:])
            except Exception as error:
                return _JobAnswer(worker, bytes(encode(ANSWER, failure(error))), ())
            finally:
                faulthandler.cancel_dump_traceback_later()
        if not lives:
            retire()
        return _JobAnswer(worker, bytes(answer), made.take_notices())


@dataclass(frozen=True, slots=True)
class _TaskHandler:
    """Message handler in a Python process of Spark, with its notices to send with the next answer."""

    handler: Handler
    notices: queue.SimpleQueue[object]

    def take_notices(self) -> tuple[object, ...]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self.notices.get_nowait())
        return tuple(found)


# (pool, worker) -> message handler in this process.
_handlers: dict[tuple[str, int], _TaskHandler] = {}


def _handler(work: _Work, worker: int, attempt: int) -> _TaskHandler:
    known = _handlers.get((work.pool, worker))
    if known is None:
        for key in [key for key in _handlers if key[0] != work.pool]:
            del _handlers[key]
        notices: queue.SimpleQueue[object] = queue.SimpleQueue()
        name = writer_name(worker, attempt)
        context = WorkerContext(worker, attempt, name, notices.put, resident=False)
        known = _handlers[work.pool, worker] = _TaskHandler(make_handler(work.handler, context), notices)
    return known


class JobPool:
    """Pool with the interface of `WorkerPool`, in which each batch of messages is a Spark job."""

    resident = False

    def __init__(self, context: SparkContext, count: int, handler: str, *, limit_s: float = 60.0) -> None:
        self._context = context
        self.group = f"slicemill-jobs-{secrets.token_hex(4)}"
        self._work = _Work(self.group, handler, limit_s)
        self._incarnations = [0] * count
        self._collected: list[_SentMessage] = []
        self._outstanding: dict[int, _SentMessage] = {}
        self._told: set[int] = set()
        self._events: deque[list[Event]] = deque()  # new events, which the threads of jobs append
        self._awake = threading.Event()
        self._threads: set[threading.Thread] = set()
        self._interrupts = Interrupts()
        self._stopped = False

    def start(self) -> None:
        self._interrupts.take()
        self._events.append([self._joined(worker) for worker in range(len(self._incarnations))])
        self._awake.set()

    def members(self) -> list[WorkerJoined]:
        """Return the workers that `wait` has reported as joined."""
        return [self._joined(worker, self._incarnations[worker]) for worker in sorted(self._told)]

    def send(self, worker: int, message: object) -> None:
        """Queue a message for the job that the next `wait` submits."""
        if worker in self._outstanding:
            raise RuntimeError(f"worker {worker} has not answered yet")
        frame = bytes(encode(MESSAGE, message))
        sent = _SentMessage(worker, self._incarnations[worker], frame, wall_clock_us())
        self._outstanding[worker] = sent
        self._collected.append(sent)

    def resize(self, count: int) -> None:
        """Change the number of workers, which is the maximum number of Spark tasks per job."""
        events: list[Event] = []
        for worker in range(count, len(self._incarnations)):
            if worker in self._told:
                self._told.discard(worker)
                events.append(WorkerLeft(worker, self._incarnations[worker], "it was not wanted any more"))
        known = len(self._incarnations)
        self._incarnations += [0] * (count - known)
        events += [self._joined(w, self._incarnations[w]) for w in range(count) if w not in self._told]
        self._events.append(events)
        self._awake.set()

    def end_stuck(self, worker: int) -> None:
        """Do nothing. A Spark task with a stuck message ends its own process after `limit_s` seconds."""

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Submit the queued messages as a job, and return new events."""
        if self._collected:
            job, self._collected = self._collected, []
            thread = InheritableThread(target=self._run, args=(job,), name="slicemill job", daemon=True)
            self._threads = {thread, *(known for known in self._threads if known.is_alive())}
            thread.start()
        self._awake.wait(timeout_s)
        self._awake.clear()
        events: list[Event] = []
        while self._events:
            events += self._events.popleft()
        for event in events:
            if isinstance(event, WorkerAnswer | WorkerLeft):
                self._outstanding.pop(event.worker, None)
            elif isinstance(event, WorkerJoined):
                self._incarnations[event.worker] = event.incarnation
                self._told.add(event.worker)
        return events

    def wake(self) -> None:
        self._awake.set()

    def stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        if any(thread.is_alive() for thread in self._threads):
            with contextlib.suppress(Exception):
                self._context.cancelJobGroup(self.group)
        for thread in self._threads:
            thread.join(_CANCEL_S)
        self._interrupts.give_back()

    def _joined(self, worker: int, incarnation: int = 0) -> WorkerJoined:
        return WorkerJoined(worker, incarnation, socket.gethostname(), os.getpid())

    def _run(self, job: list[_SentMessage]) -> None:
        """Run a Spark job for a list of messages, and append the resulting events.

        Each job has its own thread, which calls this method.
        """
        by_worker = {sent.worker: sent for sent in job}
        events: list[Event] = []
        reason, stopped = "the processes of its task ended", False
        try:
            self._context.setJobGroup(self.group, "slicemill messages", interruptOnCancel=True)
            pairs = [(sent.worker, sent.message) for sent in job]
            for done in self._context.parallelize(pairs, len(pairs)).mapPartitions(self._work).collect():
                if done.answer is not None:
                    events += _job_events(by_worker.pop(done.worker), done)
        except Exception as error:
            reason, stopped = job_failure_cause(error), not is_running(self._context)
        for sent in by_worker.values():
            events.append(WorkerLeft(sent.worker, sent.incarnation, reason, spark_stopped=stopped))
            if not stopped:
                events.append(self._joined(sent.worker, sent.incarnation + 1))
        self._events.append(events)
        self._awake.set()


def _job_events(sent: _SentMessage, done: _JobAnswer) -> Iterator[Event]:
    for notice in done.notices:
        yield Notice(sent.worker, sent.incarnation, notice)
    assert done.answer is not None
    try:
        message: object = pickle.loads(memoryview(done.answer)[1:])
    except Exception as error:
        message = failure(error)
    yield WorkerAnswer(sent.worker, sent.incarnation, message, sent.sent_us)

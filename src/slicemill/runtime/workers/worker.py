"""Worker: a Spark task that answers messages of the driver.

    connect ──► hello ──► make the handler ──► ready ──► (message ──► answer)* ──► END or EOF

The handler runs in the main thread of the task, one message at a time. Other threads may send notices.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import functools
import os
import pickle
import signal
import socket
import threading
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark import TaskContext

from slicemill.runtime.workers.channel import (
    ANSWER,
    HELLO,
    LEAVING,
    MESSAGE,
    NOTICE,
    READY,
    Address,
    Hello,
    clear_abandoned,
    connect,
    encode,
)
from slicemill.runtime.workers.events import (
    Failure,
    Handler,
    WorkerContext,
    failure,
    make_handler,
    writer_name,
)
from slicemill.runtime.workers.retire import retire

SHORT_OF_MEMORY = "a message took more memory than there is"


@dataclass(frozen=True, slots=True)
class Ticket:
    """Arguments with which the driver starts a worker."""

    worker: int
    address: Address
    key: bytes
    handler: str
    limit_s: float | None  # seconds for a message; None: the driver kills the worker

    def __repr__(self) -> str:
        # The key is omitted, because the text may be logged.
        return f"Ticket(worker={self.worker}, address={self.address!r})"


def serve(ticket: Ticket, _: Iterable[object]) -> Iterator[object]:
    """Run a worker in a Spark task, until the driver ends the worker."""
    task = TaskContext.get()
    assert task is not None
    retire()
    try:
        connection = connect(ticket.address, ticket.key)
    except (EOFError, OSError, AuthenticationError) as error:
        where = ticket.address if isinstance(ticket.address, str) else "{}:{}".format(*ticket.address)
        return iter([f"it could not connect to {where}: {failure(error).error}"])
    # These errors mean that the driver has ended, stopped this pool, or accepted a newer worker process.
    with contextlib.suppress(EOFError, OSError), connection:
        _Worker(ticket, task.taskAttemptId(), connection).run()
    clear_abandoned(ticket.address)
    return iter(())


class _Worker:
    def __init__(self, ticket: Ticket, incarnation: int, connection: Connection[bytes, bytes]) -> None:
        self._ticket = ticket
        self._connection = connection
        self._incarnation = incarnation
        self._sending = threading.Lock()
        self._early: list[memoryview] | None = []  # notices to send when the worker is ready

    def run(self) -> None:
        ticket, name = self._ticket, writer_name(self._ticket.worker, self._incarnation)
        context = WorkerContext(ticket.worker, self._incarnation, name, self._notify, resident=True)
        hello = Hello(ticket.worker, self._incarnation, name, socket.gethostname(), os.getpid())
        self._send(encode(HELLO, hello))
        try:
            handler = make_handler(ticket.handler, context)
        except Exception as error:
            self._send(encode(LEAVING, f"its handler could not be made: {failure(error).error}"))
            return
        with self._sending:
            self._connection.send_bytes(encode(READY, None))
            for notice in self._early or ():
                self._connection.send_bytes(notice)
            self._early = None
        self._answer_messages(handler)

    def _answer_messages(self, handler: Handler) -> None:
        limit_s = self._ticket.limit_s
        with Path(os.devnull).open("w") as nowhere:
            while (frame := self._connection.recv_bytes())[:1] == MESSAGE:
                if limit_s is not None:
                    # faulthandler ends the process even if hanging code holds the interpreter lock.
                    faulthandler.dump_traceback_later(limit_s, exit=True, file=nowhere)
                    with ended_by_frames(self._connection):
                        answer, lives = answer_message(handler, memoryview(frame)[1:])
                    faulthandler.cancel_dump_traceback_later()
                else:
                    answer, lives = answer_message(handler, memoryview(frame)[1:])
                self._send(answer)
                if not lives:
                    self._send(encode(LEAVING, SHORT_OF_MEMORY))
                    return

    def _notify(self, payload: object) -> None:
        frame = encode(NOTICE, payload)
        with self._sending:
            if self._early is not None:
                self._early.append(frame)
                return
            # Errors are ignored here, because the main thread detects a closed connection.
            with contextlib.suppress(OSError):
                self._connection.send_bytes(frame)

    def _send(self, frame: memoryview) -> None:
        with self._sending:
            self._connection.send_bytes(frame)


@contextlib.contextmanager
def ended_by_frames(connection: Connection[bytes, bytes]) -> Iterator[None]:
    """End this process with SIGPROF if the driver sends a message (frame) while the context is open.

    The driver sends only END to a busy worker. The kernel delivers the signal even while machine code holds
    the interpreter lock.
    """
    descriptor = connection.fileno()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGPROF)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_ASYNC)
    if connection.poll():  # a frame of the driver has already arrived
        os.kill(os.getpid(), signal.SIGPROF)
    try:
        yield
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def answer_message(handler: Handler, pickled: memoryview) -> tuple[memoryview, bool]:
    """Return the encoded answer to a message, and whether the process can go on (False: it must end)."""
    try:
        return encode(ANSWER, handler(pickle.loads(pickled))), True
    except MemoryError as error:
        # The local variables of the traceback are cleared, to release their memory.
        traceback.clear_frames(error.__traceback__)
        return encode(ANSWER, Failure(f"MemoryError: {SHORT_OF_MEMORY}", "")), False
    except (Exception, SystemExit) as error:
        return encode(ANSWER, failure(error)), True


def task_of(ticket: Ticket) -> functools.partial[Iterator[object]]:
    """Return the function that runs a worker when Spark calls it in `mapPartitions`."""
    return functools.partial(serve, ticket)

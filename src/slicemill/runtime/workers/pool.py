"""Worker pool: long-running Python tasks of Spark that answer messages within microseconds.

```
 supervisor 0 ── Spark job of one task ──► worker 0 ──┐ connects, authenticates, sends HELLO
 supervisor 1 ── Spark job of one task ──► worker 1 ──┤
                                                      ▼
 driver ── send(), wait() ──► selector over the channels ◄── WorkerListener (a thread that accepts)
```

All mutable state belongs to the thread that calls `send` and `wait`. Other threads append to a queue and wake
that thread. The incarnation of a worker is its task attempt. The newest incarnation is used, because an
executor that was suspended may leave an old worker that still answers.
"""

from __future__ import annotations

import contextlib
import pickle
import secrets
import selectors
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, TypeAlias

import psutil
from pyspark import InheritableThread, SparkContext

from slicemill.runtime.spark_session import is_local, listen_address
from slicemill.runtime.workers.channel import (
    ANSWER,
    END,
    LEAVING,
    MESSAGE,
    NOTICE,
    READY,
    Address,
    Channel,
    Hello,
    WorkerListener,
    encode,
)
from slicemill.runtime.workers.events import Event, Notice, WorkerAnswer, WorkerJoined, WorkerLeft, failure
from slicemill.runtime.workers.worker import Ticket, task_of
from slicemill.time import wall_clock_us

# Time in seconds for the creation of a worker's message handler, which may compile kernels.
_READY_S = 300.0
# Time in seconds in which a worker can end by itself before it is killed.
_GRACE_S = 2.0
# Time in seconds that the pool waits until Spark has ended a cancelled job.
_CANCEL_S = 10.0

_GONE = "its process ended"


@dataclass(slots=True)
class _Connection:
    """Connection of a worker, from its first message (HELLO) until the worker leaves."""

    hello: Hello
    channel: Channel
    process: psutil.Process | None  # the value None means a process on another machine
    deadline: float | None
    ready: bool = False
    sent_us: int | None = None  # time at which the unanswered message was sent
    writing: bool = False  # True if the selector waits until the socket is writable
    reason: str = _GONE  # reason why the worker leaves


@dataclass(frozen=True, slots=True)
class _Arrival:
    hello: Hello
    sock: socket.socket


@dataclass(frozen=True, slots=True)
class _JobEnded:
    worker: int
    reason: str | None
    goes_on: bool


_Report: TypeAlias = _Arrival | _JobEnded


@dataclass(slots=True)
class _WorkerSlot:
    """State of a worker number, which is kept when the worker process is replaced."""

    newest: int = -1
    connection: _Connection | None = None
    connected: bool = False  # True if a worker has connected since the last job ended
    lost: list[WorkerLeft] = field(default_factory=list)  # workers whose connection broke while sending


class WorkerPool:
    """Pool of `count` workers, whose handlers a factory ("package.module:factory") creates.

    `send` and `wait` must be called by the same thread, `wake` by any thread.
    """

    resident = True

    def __init__(
        self,
        context: SparkContext,
        count: int,
        handler: str,
        *,
        limit_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._count = count
        self._handler = handler
        self._limit_s = limit_s
        self._clock = clock
        self._local = is_local(context)
        self._key = secrets.token_bytes(32)
        self._slots = [_WorkerSlot() for _ in range(count)]
        self._reports: deque[_Report] = deque()
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for end in (self._wake, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._entrance: WorkerListener | None = None
        self.address: Address | None = None  # address on which the driver listens
        self._reached_at: Address = ""  # address to which workers connect
        self._supervisors: list[Supervisor] = []
        self._interrupts = Interrupts()
        self._stopped = False

    def start(self) -> None:
        """Submit a Spark job for each worker. `wait` reports the workers that have joined."""
        listen = None if self._local else listen_address(self._context)
        self._entrance = WorkerListener(listen, self._key, self._arrived)
        self.address = address = self._entrance.address
        if not isinstance(address, str):
            # Workers connect to the driver's host name, which may differ from the address of its socket.
            address = (self._context.getConf().get("spark.driver.host") or address[0], address[1])
        self._reached_at = address
        self._supervisors = [self._supervisor(worker) for worker in range(self._count)]
        self._interrupts.take()
        for supervisor in self._supervisors:
            supervisor.start()

    def _supervisor(self, worker: int) -> Supervisor:
        # A worker on another machine ends its own process a little after the driver's time-out.
        limit_s = None if self._local else self._limit_s + 1.0
        ticket = Ticket(worker, self._reached_at, self._key, self._handler, limit_s)
        group = f"slicemill-worker-{secrets.token_hex(4)}-{worker}"
        return Supervisor(self._context, group, f"worker {worker}", task_of(ticket), self._ended(worker))

    def resize(self, count: int) -> None:
        """Add workers, or remove the last workers.

        `wait` reports the workers that have joined and left. Call this method in the thread that calls
        `wait`, or while that thread does not wait.
        """
        before, self._count = self._count, count
        for worker in range(count, before):
            slot, supervisor = self._slots[worker], self._supervisors[worker]
            supervisor.stop()
            if slot.connection is None:
                supervisor.cancel()
            else:  # the worker's Spark job ends when the connection is closed
                slot.lost.append(self._remove_worker(slot, "it was not wanted any more"))
        for worker in range(before, count):
            if worker == len(self._slots):
                self._slots.append(_WorkerSlot())
                self._supervisors.append(self._supervisor(worker))
            else:
                self._supervisors[worker] = self._supervisor(worker)
            self._supervisors[worker].start()
        self.wake()

    def members(self) -> list[WorkerJoined]:
        """Return the workers that have joined and not left."""
        return [
            WorkerJoined(worker, connection.hello.incarnation, connection.hello.host, connection.hello.pid)
            for worker, slot in enumerate(self._slots)
            if (connection := slot.connection) is not None and connection.ready
        ]

    def send(self, worker: int, message: object) -> None:
        """Send a message to a worker that has answered its last message.

        If the connection is broken, the next `wait` reports that the worker has left.
        """
        slot = self._slots[worker]
        connection = slot.connection
        if connection is None or not connection.ready:
            if slot.lost:
                return
            raise RuntimeError(f"worker {worker} is not there")
        if connection.sent_us is not None:
            raise RuntimeError(f"worker {worker} has not answered yet")
        frame = encode(MESSAGE, message)
        connection.sent_us = wall_clock_us()
        connection.deadline = self._clock() + self._limit_s
        try:
            connection.channel.send(frame)
        except OSError:
            slot.lost.append(self._remove_worker(slot, _GONE))
            self.wake()
            return
        self._watch(connection)

    def end_stuck(self, worker: int) -> None:
        """Kill a stuck worker with SIGPROF.

        The signal handler first appends the stack to the worker's step record. On another machine, the kernel
        sends the signal when a frame arrives (`worker.ended_by_frames`).
        """
        connection = self._slots[worker].connection
        if connection is not None and connection.process is not None:
            with contextlib.suppress(psutil.Error):
                connection.process.send_signal(signal.SIGPROF)
        elif connection is not None:
            with contextlib.suppress(OSError):
                connection.channel.send(END)

    def wait(self, timeout_s: float | None) -> list[Event]:
        """Wait for an event, the time-out or a call of `wake`. Return the new events."""
        limit = self._until_deadline()
        if limit is not None and (timeout_s is None or limit < timeout_s):
            timeout_s = limit
        events: list[Event] = []
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._drain()
            else:
                self._serve(self._slots[key.data], events)
        while self._reports:
            self._take(self._reports.popleft(), events)
        now = self._clock()
        for slot in self._slots:
            if slot.lost:
                events += slot.lost
                slot.lost.clear()
            connection = slot.connection
            if connection is not None and connection.deadline is not None and now >= connection.deadline:
                what = (
                    f"no answer within {self._limit_s:g} s"
                    if connection.ready
                    else "its handler was not made"
                )
                _end(connection)
                events.append(self._remove_worker(slot, what))
        return events

    def wake(self) -> None:
        """Make `wait` return at once. Any thread may call this method."""
        # An error means that the waiting thread wakes anyway, or that no thread waits after `stop`.
        with contextlib.suppress(OSError):
            self._wake.send(b"\0")

    def stop(self) -> None:
        """Stop all workers and their Spark jobs, so that no process remains.

        Busy workers get _GRACE_S to finish. Call this method in the thread that calls `wait`, or when that
        thread no longer waits.
        """
        if self._stopped:
            return
        self._stopped = True
        for supervisor in self._supervisors:
            supervisor.stop()
        if self._entrance is not None:
            self._entrance.close()
        self._hang_up_on_arrivals()
        processes = [
            connection.process for connection in self._connections() if connection.process is not None
        ]
        self._end_connected()
        for supervisor, slot in zip(self._supervisors, self._slots, strict=False):
            if not (slot.connected and supervisor.join(_GRACE_S)):
                supervisor.cancel()
        for supervisor in self._supervisors:
            supervisor.join(_CANCEL_S)
        for process in psutil.wait_procs(processes, _GRACE_S)[1]:
            _kill(process)
        self._hang_up_on_arrivals()
        self._selector.close()
        self._wake.close()
        self._woken.close()
        self._interrupts.give_back()

    # The following methods are called only by the thread that calls `send` and `wait`.

    def _connections(self) -> list[_Connection]:
        return [slot.connection for slot in self._slots if slot.connection is not None]

    def _until_deadline(self) -> float | None:
        deadlines = [
            connection.deadline for connection in self._connections() if connection.deadline is not None
        ]
        return max(0.0, min(deadlines) - self._clock()) if deadlines else None

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._woken.recv(4096)) == 4096:
                pass

    def _watch(self, connection: _Connection) -> None:
        """Make `wait` also watch whether a worker's socket is writable, while bytes wait to be sent."""
        if connection.channel.sending == connection.writing:
            return
        connection.writing = connection.channel.sending
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.writing else 0)
        self._selector.modify(connection.channel, wanted, connection.hello.worker)

    def _serve(self, slot: _WorkerSlot, events: list[Event]) -> None:
        connection = slot.connection
        if connection is None:
            return
        try:
            if connection.writing:
                connection.channel.flush()
                self._watch(connection)
            for frame in connection.channel.receive():
                self._read(connection, frame, events)
        except (EOFError, OSError, MemoryError):
            events.append(self._remove_worker(slot, connection.reason))

    def _read(self, connection: _Connection, frame: memoryview, events: list[Event]) -> None:
        worker, incarnation = connection.hello.worker, connection.hello.incarnation
        kind = bytes(frame[:1])
        try:
            value = pickle.loads(frame[1:])
        except Exception as error:
            value = failure(error)
        if kind == ANSWER and connection.sent_us is not None:
            events.append(WorkerAnswer(worker, incarnation, value, connection.sent_us))
            connection.sent_us = connection.deadline = None
        elif kind == NOTICE:
            events.append(Notice(worker, incarnation, value))
        elif kind == READY:
            connection.ready, connection.deadline = True, None
            events.append(WorkerJoined(worker, incarnation, connection.hello.host, connection.hello.pid))
        elif kind == LEAVING:
            connection.reason = str(value)

    def _remove_worker(self, slot: _WorkerSlot, reason: str) -> WorkerLeft:
        connection = slot.connection
        assert connection is not None
        self._selector.unregister(connection.channel)
        connection.channel.close()
        slot.connection = None
        return WorkerLeft(connection.hello.worker, connection.hello.incarnation, reason)

    def _take(self, report: _Report, events: list[Event]) -> None:
        if isinstance(report, _JobEnded):
            self._job_ended(report, events)
        else:
            self._admit(report, events)

    def _admit(self, arrival: _Arrival, events: list[Event]) -> None:
        hello = arrival.hello
        if not 0 <= hello.worker < self._count or hello.incarnation <= self._slots[hello.worker].newest:
            arrival.sock.close()
            return
        slot = self._slots[hello.worker]
        if slot.connection is not None:
            _end(slot.connection)
            events.append(self._remove_worker(slot, "a newer attempt has taken its place"))
        process = _process(hello.pid) if self._local else None
        channel = Channel(arrival.sock)
        slot.connection = _Connection(hello, channel, process, self._clock() + _READY_S)
        slot.newest, slot.connected = hello.incarnation, True
        self._selector.register(channel, selectors.EVENT_READ, hello.worker)
        # Further frames may have arrived together with the HELLO frame.
        self._serve(slot, events)

    def _job_ended(self, report: _JobEnded, events: list[Event]) -> None:
        slot = self._slots[report.worker]
        # The end of a connected worker is reported by its connection, possibly later.
        if not report.goes_on:
            incarnation = -1 if slot.connection is None else slot.connection.hello.incarnation
            if slot.connection is not None:
                self._remove_worker(slot, _GONE)
            events.append(WorkerLeft(report.worker, incarnation, "Spark has stopped", spark_stopped=True))
        elif not slot.connected:
            events.append(
                WorkerLeft(report.worker, -1, report.reason or "its task ended before it connected")
            )
        slot.connected = slot.connection is not None

    def _end_connected(self) -> None:
        for connection in self._connections():
            with contextlib.suppress(OSError):
                connection.channel.send(END)
                self._watch(connection)
        until = time.monotonic() + _GRACE_S
        events: list[Event] = []
        while self._connections() and (left := until - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                if key.data is None:
                    self._drain()
                else:
                    self._serve(self._slots[key.data], events)
        for slot in self._slots:
            if slot.connection is not None:
                _end(slot.connection)
                self._remove_worker(slot, _GONE)

    # The following methods may be called by any thread.

    def _arrived(self, hello: Hello, sock: socket.socket) -> None:
        self._reports.append(_Arrival(hello, sock))
        self.wake()

    def _ended(self, worker: int) -> Callable[[str | None, bool], None]:
        def report(reason: str | None, goes_on: bool) -> None:
            self._reports.append(_JobEnded(worker, reason, goes_on))
            self.wake()

        return report

    def _hang_up_on_arrivals(self) -> None:
        while self._reports:
            report = self._reports.popleft()
            if isinstance(report, _Arrival):
                report.sock.close()


def _process(pid: int) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid)
    return None


def _end(connection: _Connection) -> None:
    """Kill the process of a worker that does not answer."""
    if connection.process is not None:
        _kill(connection.process)


def _kill(process: psutil.Process) -> None:
    # No other process with a reused id is killed, because psutil compares start times.
    with contextlib.suppress(psutil.Error):
        process.kill()


# A supervisor is a thread that keeps one worker running.
#
# The supervisor submits Spark jobs with a single task, one after the other.
# Each worker has its own job, because the fourth failure of a task ends the job with all its tasks.
# After the first failures, Spark itself restarts the task, on another executor if necessary.


# Minimum duration in seconds of a job after which the next job starts without back-off.
_GOOD_S = 60.0
_LONGEST_PAUSE_S = 30.0
_FIRST_PAUSE_S = 0.25

Task = Callable[[Iterable[Any]], Iterable[Any]]
# Function that a supervisor calls after each job.
# Its arguments are the reason why the job ended, and True if another job follows.
Report = Callable[[str | None, bool], None]


def pause_s(failures: int) -> float:
    """Return the back-off in seconds after a number of consecutive short jobs.

    The back-off is 0 after the first short job, then _FIRST_PAUSE_S, and doubles with each further job.
    """
    return 0.0 if failures < 2 else min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** min(failures - 2, 16))


class Supervisor:
    def __init__(self, context: SparkContext, group: str, what: str, task: Task, report: Report) -> None:
        self._context = context
        self._group = group
        self._what = what
        self._task = task
        self._report = report
        self._stopping = threading.Event()
        self._thread = InheritableThread(target=self._run, name=f"slicemill {what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Submit no further jobs. The current job continues."""
        self._stopping.set()

    def cancel(self) -> None:
        """Cancel the current Spark job of the worker."""
        with contextlib.suppress(Exception):
            self._context.cancelJobGroup(self._group)

    def join(self, timeout_s: float) -> bool:
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.wait(pause_s(failures)):
            began = time.monotonic()
            reason = self._job()
            # A short job without an error is a failure too: its worker may not have created its handler.
            failures = 0 if time.monotonic() - began >= _GOOD_S else failures + 1
            if self._stopping.is_set():
                return
            there = is_running(self._context)
            self._report(reason, there)
            if not there:
                return

    def _job(self) -> str | None:
        try:
            self._context.setJobGroup(self._group, f"slicemill {self._what}", interruptOnCancel=True)
            said = self._context.parallelize([0], 1).mapPartitions(self._task).collect()
        except Exception as error:
            return job_failure_cause(error)
        return str(said[0]) if said else None


def is_running(context: SparkContext) -> bool:
    """Return True if the Spark context runs and its JVM answers."""
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except Exception:
        return False


def job_failure_cause(error: BaseException) -> str:
    """Return the cause of a failed job, from Spark's long error message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if ": " in line and not line.startswith(("at ", "File ", "Caused by"))]
    python = [line for line in causes if line.split(":")[0].endswith(("Error", "Exception", "Interrupt"))]
    told = [line for line in python if not line.startswith(("org.", "java.", "pyspark.", ": "))]
    chosen = told or causes or lines or [type(error).__name__]
    return chosen[0][:500]


# PySpark's handler of Ctrl-C cancels all jobs before it raises KeyboardInterrupt.
# The cancelled jobs would kill workers during their runs.
# While a pool runs, Ctrl-C only raises KeyboardInterrupt.
# The code that catches the exception stops the pool.


class Interrupts:
    """Replacement of PySpark's handler of Ctrl-C while a pool runs.

    A handler that the program has set is not replaced.
    """

    def __init__(self) -> None:
        self._before: object = None

    def take(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        handler = signal.getsignal(signal.SIGINT)
        if getattr(handler, "__module__", "").startswith("pyspark."):
            self._before = handler
            signal.signal(signal.SIGINT, _interrupt)

    def give_back(self) -> None:
        if self._before is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGINT) is _interrupt:
            signal.signal(signal.SIGINT, self._before)  # type: ignore[arg-type]
        self._before = None


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt

"""Processor time limit for one step of a run.

An example of a step is the filter of one query. A step that takes much longer than usual is interrupted. The
queries that need the step fail, and the other queries of the task continue. The limit counts processor time,
so that no step fails because the machine is busy. A timer signal interrupts Python code and regular
expressions of `re`. A call of machine code, such as Arrow's, is interrupted when it returns. If the call does
not return, the kernel kills the process, and the step record tells the driver which queries fail
(`StepRecord`).
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import signal
import struct
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from numba.core.compiler_lock import global_compiler_lock

_TICK_S = 0.5
# Part of the error message of each query that failed because a step was too slow.
FAR_LONGER = "far more than usual"
# Time limit of a single call of machine code, as a multiple of the limit of a step.
_OF_ONE_CALL = 1.5


class StepOverran(BaseException):
    """Raised in a step that has exceeded its limit of processor time.

    It is no Exception, so that the code of the step cannot catch it.
    """


class StepCancelled(StepOverran):
    """Raised in a step if all queries that need the step are being dropped."""


class StepLimit:
    """Limit of the processor time of a step; `begin` restarts the measurement.

    If there is a `record`, this process may be killed. `item` is the index of the run in the message with the
    number `message`.
    """

    def __init__(
        self, seconds: float, record: StepRecord | None = None, item: int = 0, message: int = 0
    ) -> None:
        self.seconds = seconds
        self._record = record
        self._item = item
        self._message = message
        self._spent_s = 0.0
        self._place: StepPosition | None = None

    def begin(self, step: int) -> None:
        """Start a step, given its index in the task."""
        self._spent_s, self._place = 0.0, StepPosition(self._item, step)
        if self._record is not None:
            self._record.begin(self._place)

    def end(self, *, deadly: bool = False) -> None:
        """Record the end of a step. The following code has no limit of processor time.

        The record keeps a `deadly` step, which ends the process.
        """
        ended, self._place = self._place, None
        if ended is not None and self._record is not None and not deadly:
            self._record.end()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Interrupt steps that exceed their limit of processor time, while the context is open.

        This works only in the main thread of a process.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGVTALRM, self._tick)
        signal.setitimer(signal.ITIMER_VIRTUAL, _TICK_S, _TICK_S)
        self._end_process_after(self.seconds * _OF_ONE_CALL)
        try:
            yield
        finally:
            self._end_process_after(0)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    def _end_process_after(self, cpu_s: float) -> None:
        if self._record is not None:
            self._record.end_process_after(cpu_s)

    def _tick(self, _: int, __: FrameType | None) -> None:
        # The timer that kills the process is restarted, because the interpreter is not blocked.
        self._end_process_after(self.seconds * _OF_ONE_CALL)
        compiles = global_compiler_lock.is_locked()  # type: ignore[no-untyped-call]
        # A kernel is compiled only once, so the time of the compilation does not count.
        if self._place is None or compiles:
            return
        self._spent_s += _TICK_S
        if self._spent_s > self.seconds:
            raise StepOverran
        if self._record is not None and self._record.is_cancelled(self._place, self._message):
            raise StepCancelled


# A step record is a file in which a worker process writes its current step.
# The file remains after the process has ended.
#
#     <home>/steps/<mill>-<worker>-<incarnation>           index of item and step
#     <home>/steps/<mill>-<worker>-<incarnation>.cancel    steps that the driver cancels
#
# The worker maps the file into memory, so that an update needs no system call.
# Python cannot interrupt a call of machine code that does not return.
# For such a call, the kernel sends the signal SIGPROF to the process.
# The signal handler of `faulthandler` needs no interpreter lock.
# The handler appends the stack of the process to the step record, and the process ends.
# So the driver can read in which step a dead worker was, and whether the worker was stuck in the step.


_PLACE = struct.Struct("<qq")
_CANCEL = ".cancel"


class StepPosition(NamedTuple):
    """Position of a step: index of its run in the message, and index of its node in the task."""

    item: int
    step: int


_NO_STEP = StepPosition(-1, -1)


class StepRecord:
    """Writer of a step record, the file in which a worker records its current step.

    A process has one active record at a time.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("wb+") as file:
            file.write(_PLACE.pack(*_NO_STEP))
            file.flush()
            self._map = mmap.mmap(file.fileno(), _PLACE.size)
        self._stack = path.open("ab")

    def take_up(self) -> None:
        """Make this step record active, before this process handles messages for its worker.

        A process may run messages of several workers in turn.
        """
        faulthandler.register(signal.SIGPROF, self._stack, all_threads=True, chain=True)

    def begin(self, place: StepPosition) -> None:
        """Record the start of a step."""
        _PLACE.pack_into(self._map, 0, *place)

    def end(self) -> None:
        """Record that no step is running."""
        _PLACE.pack_into(self._map, 0, *_NO_STEP)

    def end_process_after(self, cpu_s: float) -> None:
        """Kill this process after `cpu_s` seconds of processor time, unless the method is called again.

        0 disables the timer.
        """
        signal.setitimer(signal.ITIMER_PROF, cpu_s)

    def is_cancelled(self, place: StepPosition, message: int) -> bool:
        """Return True if the driver has cancelled the step at a position in the given message."""
        try:
            number, places = json.loads(_cancel_file(self.path).read_bytes())
        except FileNotFoundError:
            return False
        return bool(number == message and list(place) in places)

    def close(self) -> None:
        """Close the step record. Its file is not deleted."""
        faulthandler.unregister(signal.SIGPROF)
        self._map.close()
        self._stack.close()


def cancel_steps(path: Path, message: int, places: Collection[StepPosition]) -> None:
    """Request that a worker cancels steps of its current message, by a file beside its step record."""
    written = _cancel_file(path).with_suffix(".new")
    written.write_text(json.dumps([message, sorted(places)]))
    written.replace(_cancel_file(path))


def current_step(path: Path) -> tuple[StepPosition, bool] | None:
    """Return the step in a step record, and True if the process was stuck in the step.

    The step is the current one, or the one in which the process ended. Return None if no step was running.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _PLACE.size:
        return None
    place = StepPosition(*_PLACE.unpack_from(content))
    return None if place == _NO_STEP else (place, len(content) > _PLACE.size)


def remove_record(path: Path) -> None:
    """Delete the step record of a process that has ended."""
    path.unlink(missing_ok=True)
    _cancel_file(path).unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Create the folder of step records, and delete old records."""
    # Workers also run if they cannot record their steps.
    with suppress(OSError):
        folder.mkdir(exist_ok=True)
        remove_records(folder)


def remove_records(folder: Path, mill: str | None = None) -> None:
    """Delete the step records of one running engine, or of all engines."""
    if folder.is_dir():
        for path in list(folder.iterdir()):
            if mill is None or path.name.startswith(f"{mill}-"):
                path.unlink(missing_ok=True)


def _cancel_file(path: Path) -> Path:
    return path.with_name(path.name + _CANCEL)

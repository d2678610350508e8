"""The record of the step that a worker runs: a file that outlives the worker's process.

    <home>/steps/<mill>-<worker>-<incarnation>           place of the item in its message, place of the step
    <home>/steps/<mill>-<worker>-<incarnation>.cancel    the steps that the dispatcher wants to end

The worker maps the file into memory, so that a note costs no system call. A call of machine code that does
not return cannot be interrupted by Python. The kernel ends such a process with SIGPROF, and the handler of
`faulthandler`, which needs no interpreter lock, first appends the stack to the record. So the dispatcher
knows of a worker that is gone whether it was stuck, and in which step.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import signal
import struct
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PLACE = struct.Struct("<qq")
_CANCEL = ".cancel"


class StepPlace(NamedTuple):
    """A step: the place of its item in the message of a worker, and the place of its node in the unit."""

    item: int
    step: int


_NO_STEP = StepPlace(-1, -1)


class StepRecord:
    """A worker's end of its record. One process writes to one record at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("wb+") as file:
            file.write(_PLACE.pack(*_NO_STEP))
            file.flush()
            self._map = mmap.mmap(file.fileno(), _PLACE.size)
        self._stack = path.open("ab")

    def take_up(self) -> None:
        """Make this the record of the process, which may run messages of several workers in turn."""
        faulthandler.register(signal.SIGPROF, self._stack, all_threads=True, chain=True)

    def begin(self, place: StepPlace) -> None:
        """Note that a step begins."""
        _PLACE.pack_into(self._map, 0, *place)

    def end(self) -> None:
        """Note that no step runs."""
        _PLACE.pack_into(self._map, 0, *_NO_STEP)

    def end_process_after(self, cpu_s: float) -> None:
        """End this process after so many processor seconds, unless this is called again; 0 means never."""
        signal.setitimer(signal.ITIMER_PROF, cpu_s)

    def is_cancelled(self, place: StepPlace, message: int) -> bool:
        """Return True if the dispatcher wants a step of a message to end."""
        try:
            number, places = json.loads(_cancel_file(self.path).read_bytes())
        except FileNotFoundError:
            return False
        return bool(number == message and list(place) in places)

    def close(self) -> None:
        """Have no record any more; the file stays."""
        faulthandler.unregister(signal.SIGPROF)
        self._map.close()
        self._stack.close()


def cancel_steps(path: Path, message: int, places: Collection[StepPlace]) -> None:
    """Ask the worker with this record to end these steps of a message."""
    written = _cancel_file(path).with_suffix(".new")
    written.write_text(json.dumps([message, sorted(places)]))
    written.replace(_cancel_file(path))


def current_step(path: Path) -> tuple[StepPlace, bool] | None:
    """Return the step in which the process with this record is, or was when it ended; and if it was stuck."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _PLACE.size:
        return None
    place = StepPlace(*_PLACE.unpack_from(content))
    return None if place == _NO_STEP else (place, len(content) > _PLACE.size)


def remove_record(path: Path) -> None:
    """Remove a record of a process that is gone."""
    path.unlink(missing_ok=True)
    _cancel_file(path).unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make the folder of records, and remove those of processes that have ended with their driver."""
    with suppress(OSError):  # workers do without
        folder.mkdir(exist_ok=True)
        remove_records(folder)


def remove_records(folder: Path, mill: str | None = None) -> None:
    """Remove the records of a mill, or of all mills."""
    if folder.is_dir():
        for path in list(folder.iterdir()):
            if mill is None or path.name.startswith(f"{mill}-"):
                path.unlink(missing_ok=True)


def _cancel_file(path: Path) -> Path:
    return path.with_name(path.name + _CANCEL)

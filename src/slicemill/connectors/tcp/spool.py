"""Spool of a TCP source: files with received lines, which are stored before reading.

    000000000001.lines      received lines
    000000000001.sums       a line for each append: first byte, last byte, and CRC-32 of these bytes

Because of the spool, lines can be read again after a crash. Lines are appended to one open file. When the
file is full, a file with the next number begins. A position consists of the number of a file and a byte
offset. Files are deleted when all their lines are committed. Each read verifies checksums. An append without
a checksum, of a killed process or of an older version, is not verified. If the process is killed, at most an
incomplete line is lost.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

import numpy as np
import numpy.typing as npt

from slicemill.errors import SlicemillError
from slicemill.storage.changes import frame, unframe
from slicemill.storage.filesystem import LOCAL, ensure_folder, open_private

MAX_FILE_BYTES = 4 << 20

_SUFFIX, SUMS_SUFFIX = ".lines", ".sums"
_POLL_S = 0.05
_LOCK_PATIENCE_S = 10.0


class SpoolPosition(NamedTuple):
    file: int
    at: int


class SpooledLines(NamedTuple):
    """Range of bytes that one append wrote to a spool file, with its checksum.

    `crc` is None if the lines of the append are lost.
    """

    begin: int
    end: int
    crc: int | None


class ReceivedLines(NamedTuple):
    """Complete lines from a spool, with arrival times.

    Lines that end at or before `ends[n]` arrived at or before `times_us[n]`.
    """

    data: bytes
    next: SpoolPosition
    ends: list[int]
    times_us: list[int]

    def cut(self, length: int) -> ReceivedLines:
        """Return the lines in the first `length` bytes."""
        file, at = self.next
        position = SpoolPosition(file, at - len(self.data) + length)
        return ReceivedLines(self.data[:length], position, self.ends, self.times_us)

    def arrivals(self, line_ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the arrival times of the lines that end at these positions."""
        which = np.searchsorted(np.array(self.ends), line_ends, side="left")
        return np.array(self.times_us)[np.minimum(which, len(self.times_us) - 1)]


def read_spooled_lines(path: Path) -> list[SpooledLines]:
    """Return the appends to a spool file in order, without incomplete entries."""
    try:
        lines = path.with_suffix(SUMS_SUFFIX).read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    found = {}
    for line in lines:
        content = unframe(line)
        if content is not None:
            stretch = SpooledLines(*json.loads(content))
            found[stretch.begin] = stretch  # a repair adds an entry that replaces the damaged entry
    return sorted(found.values())


def find_damaged_lines(path: Path) -> list[SpooledLines]:
    """Return the appends to a spool file whose bytes do not match their checksum."""
    data = path.read_bytes()
    return [one for one in read_spooled_lines(path) if _is_damaged(one, data[one.begin : one.end])]


def mark_lost(path: Path, stretch: SpooledLines) -> None:
    """Mark the lines of an append as lost, so that readers skip them."""
    with os.fdopen(open_private(path.with_suffix(SUMS_SUFFIX)), "ab") as sums:
        sums.write(_line_of(stretch._replace(crc=None)))


def _line_of(stretch: SpooledLines) -> bytes:
    return frame(json.dumps(stretch).encode())


def _is_damaged(stretch: SpooledLines, data: bytes) -> bool:
    # An append whose end is missing because of a power failure is not reported as damage.
    whole = len(data) == stretch.end - stretch.begin
    return stretch.crc is not None and whole and crc32(data) != stretch.crc


def spool_files(folder: Path) -> dict[int, Path]:
    """Return the spool files in a folder by file number, in ascending order."""
    found = {int(path.stem): path for path in folder.glob(f"*{_SUFFIX}")}
    return dict(sorted(found.items()))


class Spool:
    """Folder with the received lines of one TCP source.

    One process at a time may write to the folder. A receiving and a reading thread may use the spool
    concurrently.
    """

    def __init__(self, folder: Path, after: SpoolPosition | None, roll_bytes: int = MAX_FILE_BYTES) -> None:
        """Open the folder of a spool.

        `after` is the committed position. Files before this position may have been deleted.
        """
        ensure_folder(LOCAL, folder)
        self.folder = folder
        self._roll_bytes = roll_bytes
        self._after = after
        self._exclusive = _lock_folder(folder)
        self._guard = threading.Lock()
        # End position and arrival time of each append, by file number. The last end is the size of the file.
        self._ends: dict[int, list[int]] = {}
        self._times_us: dict[int, list[int]] = {}
        self._stretches: dict[int, list[SpooledLines]] = {}
        for number, path in spool_files(folder).items():
            self._stretches[number] = read_spooled_lines(path)
            status = path.stat()
            self._note(number, status.st_size, status.st_mtime_ns // 1_000)
        last = max(self._ends, default=0)
        if after is not None and (after.file > last or after.at > self._size(after.file)):
            last = max(last, after.file) + 1  # a new file begins, because the disk has lost committed lines
        self._last = max(last, 1)
        self._file, self._sums = self._opened()

    def _note(self, number: int, size: int, arrival_us: int) -> None:
        self._ends.setdefault(number, []).append(size)
        self._times_us.setdefault(number, []).append(arrival_us)

    def _size(self, number: int) -> int:
        return self._ends[number][-1] if number in self._ends else 0

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:012d}{_SUFFIX}"

    def _opened(self) -> tuple[BinaryIO, BinaryIO]:
        path = self._path(self._last)
        file = os.fdopen(open_private(path), "ab", buffering=0)
        size = self._size(self._last)
        if size and not _ends_whole(path, size):
            file.write(b"\n")  # completes a line whose end a crash has lost
            self._ends[self._last][-1] = size + 1
        self._ends.setdefault(self._last, [0])
        self._times_us.setdefault(self._last, [0])
        self._stretches.setdefault(self._last, [])
        sums_path = path.with_suffix(SUMS_SUFFIX)
        sums = os.fdopen(open_private(sums_path), "ab", buffering=0)
        if (written := sums_path.stat().st_size) and not _ends_whole(sums_path, written):
            sums.write(b"\n")
        return file, sums

    @property
    def begin(self) -> SpoolPosition:
        """Return the first position in the spool that can still be read."""
        with self._guard:
            return SpoolPosition(min(self._ends), 0)

    @property
    def end(self) -> SpoolPosition:
        with self._guard:
            return SpoolPosition(self._last, self._size(self._last))

    @property
    def is_new(self) -> bool:
        """Return True if no line has ever been received."""
        return self.end == SpoolPosition(1, 0)

    def has_after(self, position: SpoolPosition) -> bool:
        with self._guard:
            return any(
                ends[-1] > (position.at if number == position.file else 0)
                for number, ends in self._ends.items()
                if number >= position.file
            )

    @property
    def size_bytes(self) -> int:
        """Return the total size of the spool files in bytes."""
        with self._guard:
            return sum(ends[-1] for ends in self._ends.values())

    def append(self, lines: bytes, arrival_us: int) -> None:
        """Append complete lines to the spool atomically."""
        with self._guard:
            size = self._size(self._last)
            stretch = SpooledLines(size, size + len(lines), crc32(lines))
            try:
                _write(self._file, lines)
                _write(self._sums, _line_of(stretch))
            except OSError as problem:
                os.ftruncate(self._file.fileno(), size)
                raise SlicemillError(
                    f"cannot write what came by TCP to {self.folder}: {problem.strerror or problem}"
                ) from problem
            self._note(self._last, size + len(lines), arrival_us)
            self._stretches[self._last].append(stretch)
            if size + len(lines) >= self._roll_bytes:
                self._file.close()
                self._sums.close()
                self._last += 1
                self._file, self._sums = self._opened()

    def read(self, position: SpoolPosition, most_bytes: int) -> ReceivedLines:
        """Read complete lines of one spool file from a position on.

        If there is a line, at least one line is returned.
        """
        with self._guard:
            number, at = position
            if number not in self._ends and position != self._after:
                raise SlicemillError(
                    f"spool file {number} is missing in {self.folder}; restore the home's folder as a whole"
                )
            while at >= self._size(number) and number < self._last:
                number, at = number + 1, 0
            ends, times_us = self._ends[number], self._times_us[number]
            size = ends[-1]
            if at >= size:
                return ReceivedLines(b"", SpoolPosition(number, at), [0], [0])
            first = bisect_left(ends, at + 1)
            # Appends are read completely, unless the result would exceed `most_bytes`.
            last = max(bisect_right(ends, at + most_bytes), first + 1)
            end = ends[last - 1]
            ends, times_us = [n - at for n in ends[first:last]], times_us[first:last]
            stretches = [one for one in self._stretches[number] if one.begin < end and one.end > at]
        lost = next((one for one in stretches if one.crc is None), None)
        if lost is not None and lost.begin <= at:
            return ReceivedLines(b"", SpoolPosition(number, lost.end), [0], [0])
        data = self._read_verified(number, at, end if lost is None else lost.begin, stretches)
        if len(data) > most_bytes:
            cut = data.rfind(b"\n", 0, most_bytes) + 1 or data.find(b"\n") + 1
            data = data[:cut]
        return ReceivedLines(data, SpoolPosition(number, at + len(data)), ends, times_us)

    def _read_verified(self, number: int, at: int, end: int, stretches: list[SpooledLines]) -> bytes:
        """Read bytes of a spool file, and verify the checksums of all appends that contain them."""
        inside = [one for one in stretches if one.begin < end]
        begin = min([at, *(one.begin for one in inside)])
        data = _bytes(self._path(number), begin, max([end, *(one.end for one in inside)]) - begin)
        for one in inside:
            if _is_damaged(one, data[one.begin - begin : one.end - begin]):
                raise SlicemillError(
                    f"{self._path(number)} is damaged from byte {one.begin} to {one.end}: lines that were "
                    "received there are lost; restore it from a copy of the home, or run 'slicemill home "
                    "repair' to continue without them"
                )
        return data[at - begin : end - begin]

    def free(self, position: SpoolPosition) -> None:
        """Delete the spool files before a committed position."""
        with self._guard:
            done = [number for number in self._ends if number < min(position.file, self._last)]
            for number in done:
                del self._ends[number], self._times_us[number]
                self._stretches.pop(number, None)
        for number in done:
            self._path(number).unlink(missing_ok=True)
            self._path(number).with_suffix(SUMS_SUFFIX).unlink(missing_ok=True)

    def close(self) -> None:
        with self._guard:
            self._file.close()
            self._sums.close()
        self._exclusive.close()


def _write(file: BinaryIO, data: bytes) -> None:
    written = file.write(data)
    while written < len(data):
        written += file.write(memoryview(data)[written:])


def _bytes(path: Path, at: int, length: int) -> bytes:
    file = os.open(path, os.O_RDONLY)
    try:
        return os.pread(file, length, at)
    finally:
        os.close(file)


def _ends_whole(path: Path, size: int) -> bool:
    return _bytes(path, size - 1, 1) == b"\n"


def _lock_folder(folder: Path) -> BinaryIO:
    """Lock the folder of a spool.

    If another process holds the lock, wait a moment for the end of this process.
    """
    file = os.fdopen(open_private(folder / "lock"), "ab")
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except OSError:
            if time.monotonic() > deadline:
                file.close()
                raise SlicemillError(
                    f"another process receives into {folder}; stop it, or use another home"
                ) from None
            time.sleep(_POLL_S)

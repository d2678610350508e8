"""Lock of a home: only one process writes at a time."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from slicemill.storage.files import PRIVATE_FOLDER, open_private
from slicemill.storage.home_state import HomeError

LOCK = "lock"


class HomeLocked(HomeError):
    """Home that is locked by another process."""


class HomeLock:
    """`flock` with the holder's id; released when the process ends."""

    __slots__ = ("_file", "_folder")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def take(self, advice: str = "stop it, or give this one a home of its own") -> None:
        """Take the lock; raise HomeLocked if another process has it."""
        if self._file is not None:
            return
        try:
            self._folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Opening must not truncate: the file may name the current holder.
            file = os.fdopen(open_private(self._folder / LOCK), "a+", encoding="utf-8")
        except OSError as problem:
            raise HomeError(
                f"{self._folder} cannot be a home: {problem.strerror}; name a folder that can be written"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _described(file.read())
            file.close()
            raise HomeLocked(f"another mill{holder} runs in {self._folder}; {advice}") from None
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _described(text: str) -> str:
    """Return the holder of a lock as text, "" if unknown."""
    try:
        holder = json.loads(text)
        return f" (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return ""

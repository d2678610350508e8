"""The lock of a home: one process writes to it at a time."""

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
    """Another process has the home."""


class HomeLock:
    """An flock on a file that says who holds it; the kernel releases it when the process ends."""

    __slots__ = ("_file", "_folder")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def take(self, advice: str = "stop it, or give this one a home of its own") -> None:
        """Take the lock unless this object has it; HomeLocked, with advice, if another process has it."""
        if self._file is not None:
            return
        try:
            self._folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Not truncated by opening: it may name another process that holds the lock.
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
    """Who holds a lock, as far as its file says so."""
    try:
        holder = json.loads(text)
        return f" (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return ""

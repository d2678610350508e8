"""Reader of a home directory for a process other than the engine, which may write meanwhile.

The reader follows the journal without a lock. It applies only complete records, so it always has the state
after some commit, and never returns to an earlier commit. The reader applies a record as soon as it is
written. With durability "machine" this is some milliseconds before the record survives a loss of power.

Reading rows that retention has deleted meanwhile raises `ExtentFreed`. The caller then calls `poll` and
retries.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from slicemill.storage.filesystem import LOCAL, FileSystem, exists
from slicemill.storage.home import check_format, require_home
from slicemill.storage.home_state import HomeError, HomeState, UnreferencedFiles
from slicemill.storage.journal import JournalDamaged, JournalPosition, apply_lines, load, records_path
from slicemill.storage.log import Log

# Maximum number of attempts to load the journal.
# An attempt fails only if two newer snapshots are written meanwhile.
_ATTEMPTS = 100
_LOOKS = 3

T = TypeVar("T")


class HomeReader:
    """Follower of the journal of a home directory, for one thread.

    `poll` applies new commits.
    """

    def __init__(self, folder: Path, files: FileSystem = LOCAL) -> None:
        require_home(folder, files)
        check_format(folder, files)
        self.folder = folder
        self._files = files
        self._state = HomeState(folder, files)
        self._position = JournalPosition(0, 0)
        self.torn = 0  # number of bytes after the last complete record when the journal was loaded
        self._load()

    @property
    def epoch(self) -> int:
        """Return the number of the last commit that was read, or -1 if there was none."""
        return self._state.epoch

    @property
    def committed_us(self) -> int:
        """Return the time of the last commit that was read."""
        return self._state.committed_us

    @property
    def logs(self) -> Mapping[str, Log]:
        return self._state.logs

    @property
    def tasks(self) -> Mapping[str, dict[str, Any]]:
        return self._state.tasks

    @property
    def streams(self) -> Mapping[str, dict[str, Any]]:
        return self._state.streams

    @property
    def statements(self) -> list[dict[str, Any]]:
        return self._state.statements

    @property
    def tables(self) -> Mapping[str, str]:
        """Map each table to the file of its current rows in the folder `tables`."""
        return self._state.tables

    @property
    def lives(self) -> Mapping[str, dict[str, Any]]:
        """Map each paused or retried query or stream to its journal fields about pauses and retries."""
        return self._state.lives

    def checkpoint_folder(self, task: str) -> Path:
        """Return the folder with the checkpoint files of a task."""
        return self._state.checkpoint_folder(task)

    def poll(self) -> int:
        """Apply the commits that were written since the last call, and return their number."""
        before = self._state.epoch
        try:
            while self._repeated(self._follow):
                continue
        except FileNotFoundError:
            # The journal is empty, or the engine has removed old journal files after a newer snapshot.
            self._load()
        # The reader forgets unreferenced files, because only the engine removes files.
        self._state.garbage = UnreferencedFiles()
        return self._state.epoch - before

    def _follow(self) -> bool:
        """Apply new records of a journal file; return True if there is a next file."""
        base, offset = self._position
        path = records_path(self.folder, base)
        data = self._files.read(path, offset)
        self._position = JournalPosition(base, apply_lines(self._state, data, path, offset, _silent))
        following = self._state.epoch + 1
        if following == base or not exists(self._files, records_path(self.folder, following)):
            return False
        self._position = JournalPosition(following, 0)
        return True

    def _load(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                loaded = self._repeated(lambda: load(self.folder, self._files, _silent))
                self._state, self._position, self.torn, _ = loaded
            except FileNotFoundError:
                continue
            return
        raise HomeError(f"the journal of {self.folder} changes faster than it can be read")

    def _repeated(self, read: Callable[[], T]) -> T:
        """Read the journal; if a record is damaged, read again, because it may be half-written."""
        for _ in range(_LOOKS):
            with contextlib.suppress(JournalDamaged):
                return read()
        return read()


def _silent(_: str) -> None:
    pass

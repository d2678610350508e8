"""The reader of a home for other processes, while its mill runs.

It reads the journal without a lock. A record counts once it is whole, so what a reader sees is what held
after some commit, and later something that came after it. It sees a record as soon as it is written, with
durability "machine" some milliseconds before it is safe from a loss of power.

Rows of epochs that are freed meanwhile cannot be read any more: `ExtentGone`; poll, and look again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from slicemill.storage.files import LOCAL, FileSystem, exists
from slicemill.storage.home_format import check_format, require_home
from slicemill.storage.home_state import HomeError, HomeState, UnreferencedFiles
from slicemill.storage.journal import JournalDamaged, JournalPosition, apply_lines, load, records_path
from slicemill.storage.log import Log

# How often files may vanish under a reader while it loads a snapshot: each time a writer has made two more.
_ATTEMPTS = 100
_LOOKS = 3

T = TypeVar("T")


class HomeReader:
    """Follows the journal of a home. Use it from one thread; call `poll` to see what is new."""

    def __init__(self, folder: Path, files: FileSystem = LOCAL) -> None:
        require_home(folder, files)
        check_format(folder, files)
        self.folder = folder
        self._files = files
        self._state = HomeState(folder, files)
        self._position = JournalPosition(0, 0)
        self.torn = 0  # bytes after the last whole record, when the journal was loaded
        self._load()

    @property
    def epoch(self) -> int:
        """The number of the last commit that was seen; -1 before the first."""
        return self._state.epoch

    @property
    def committed_us(self) -> int:
        """When the last commit that was seen was made."""
        return self._state.committed_us

    @property
    def logs(self) -> Mapping[str, Log]:
        return self._state.logs

    @property
    def units(self) -> Mapping[str, dict[str, Any]]:
        return self._state.units

    @property
    def streams(self) -> Mapping[str, dict[str, Any]]:
        return self._state.streams

    @property
    def statements(self) -> list[dict[str, Any]]:
        return self._state.statements

    @property
    def tables(self) -> Mapping[str, str]:
        """The file of each table's rows, in the folder `tables`."""
        return self._state.tables

    @property
    def lives(self) -> Mapping[str, dict[str, Any]]:
        """Of queries and streams, by log: whether they are paused, and how often they were tried again."""
        return self._state.lives

    def checkpoint_folder(self, unit: str) -> Path:
        """Where a unit's state files lie."""
        return self._state.checkpoint_folder(unit)

    def poll(self) -> int:
        """See what was committed since; how many epochs those were."""
        before = self._state.epoch
        try:
            while self._repeated(self._follow):
                continue
        except FileNotFoundError:
            # The writer has removed what comes next: a snapshot has it. (Or there is nothing yet.)
            self._load()
        # Only the writer removes files.
        self._state.garbage = UnreferencedFiles()
        return self._state.epoch - before

    def _follow(self) -> bool:
        """Apply what is new in the file at hand; True if the journal goes on in another one."""
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
        """Read again where something looked damaged: a writer may have changed it in that moment."""
        for _ in range(_LOOKS):
            with contextlib.suppress(JournalDamaged):
                return read()
        return read()


def _silent(_: str) -> None:
    pass

"""HomeReader: what another process sees of a home, while its mill goes on.

It reads the journal without a lock. A record counts once it is whole, so what a reader sees is what held
after some commit, and later something that came after it. It sees a record as soon as it is written, with
durability "machine" some milliseconds before it is safe from a loss of power.

Rows of epochs that are freed meanwhile cannot be read any more: `ExtentGone`; poll, and look again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slicemill.storage.files import LOCAL, FileSystem, exists
from slicemill.storage.home_format import check_format
from slicemill.storage.home_state import Garbage, HomeError, HomeState
from slicemill.storage.journal import Position, apply_lines, load, records_path
from slicemill.storage.log import Log

# How often files may vanish under a reader while it loads a snapshot: each time a writer has made two more.
_ATTEMPTS = 100


class HomeReader:
    """Follows the journal of a home. Use it from one thread; call `poll` to see what is new."""

    def __init__(self, folder: Path, files: FileSystem = LOCAL) -> None:
        check_format(folder, files)
        self.folder = folder
        self._files = files
        self._state = HomeState(folder, files)
        self._position = Position(0, 0)
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

    def checkpoint_folder(self, unit: str) -> Path:
        """Where a unit's state files lie."""
        return self._state.checkpoint_folder(unit)

    @property
    def statements(self) -> list[dict[str, Any]]:
        return self._state.statements

    def poll(self) -> int:
        """See what was committed since; how many epochs those were."""
        before = self._state.epoch
        try:
            while self._follow():
                continue
        except FileNotFoundError:
            # So far behind that the writer has removed what comes next: a snapshot has it.
            self._load()
        # Only the writer removes files.
        self._state.garbage = Garbage()
        return self._state.epoch - before

    def _follow(self) -> bool:
        """Apply what is new in the file at hand; True if the journal goes on in another one."""
        base, offset = self._position
        path = records_path(self.folder, base)
        try:
            data = self._files.read(path, offset)
        except FileNotFoundError:
            if base or self._state.epoch >= 0:
                raise
            return False  # a new home, without a commit
        self._position = Position(base, apply_lines(self._state, data, path, offset, _silent))
        following = self._state.epoch + 1
        if following == base or not exists(self._files, records_path(self.folder, following)):
            return False
        self._position = Position(following, 0)
        return True

    def _load(self) -> None:
        for _ in range(_ATTEMPTS):
            try:
                self._state, self._position, _torn = load(self.folder, self._files, _silent)
            except FileNotFoundError:
                continue
            return
        raise HomeError(f"the journal of {self.folder} changes faster than it can be read")


def _silent(_: str) -> None:
    pass

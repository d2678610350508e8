"""Trash of a home: unreferenced files, deleted after a day.

    trash/1700000000000000/logs/bid/w3.2-0.arrows     moved there at that time (µs)

A crashed writer leaves such files, and they are useless. But after external damage the journal may fail to
reference files that are needed, so opening a home only moves files. `mv trash/<time>/* .` in the home
restores them. The folder may be removed at any time to free space.
"""

from __future__ import annotations

import errno
from pathlib import Path

from slicemill.storage.files import FileSystem, ensure_folder, is_full
from slicemill.storage.home_state import CHECKPOINTS, LOGS

TRASH = "trash"
KEPT_US = 86_400_000_000
_NESTED = (LOGS, CHECKPOINTS)  # their files are in folders of logs and units


class Trash:
    """Move of files to the trash, with one time."""

    __slots__ = ("_files", "_home", "_now_us")

    def __init__(self, home: Path, files: FileSystem, now_us: int) -> None:
        self._home = home
        self._files = files
        self._now_us = now_us

    def take(self, path: Path) -> bool:
        """Move a file to the trash. False if it does not exist.

        On a full disk, or across file systems, the file stays where it is.
        """
        target = self._home / TRASH / str(self._now_us) / path.relative_to(self._home)
        try:
            ensure_folder(self._files, target.parent)
            self._files.replace(path, target)
        except OSError as problem:
            if is_full(problem) or problem.errno in (errno.EXDEV, errno.ENOENT):
                return False
            raise
        return True

    def take_folder(self, folder: Path) -> int:
        """Move a folder's files to the trash; return their number."""
        taken = sum(self.take(folder / name) for name in self._files.names(folder))
        self._files.remove_folder(folder)
        return taken

    def empty(self) -> None:
        """Delete files that have been in the trash for a day."""
        for name in self._files.names(self._home / TRASH):
            if name.isdecimal() and int(name) <= self._now_us - KEPT_US:
                batch = self._home / TRASH / name
                for kind in self._files.names(batch):
                    if kind in _NESTED:
                        for inner in self._files.names(batch / kind):
                            remove_tree(self._files, batch / kind / inner)
                    remove_tree(self._files, batch / kind)
                self._files.remove_folder(batch)


def remove_tree(files: FileSystem, folder: Path) -> int:
    """Remove a folder and its files; return the number of files."""
    names = files.names(folder)
    for name in names:
        files.remove(folder / name)
    files.remove_folder(folder)
    return len(names)

"""The trash of a home: files that no record names, kept for a day before they are deleted.

    trash/1700000000000000/logs/bid/w3.2-0.arrows     moved there at that time (µs)

A writer that died leaves such files, and they are of no use. But a journal that was damaged from outside does
not name files that are needed, so opening a home moves files and deletes none. `mv trash/<time>/* .` in the
home restores them. The folder may be removed at any time to free space.
"""

from __future__ import annotations

import errno
from pathlib import Path

from slicemill.storage.files import FileSystem, ensure_folder, is_full
from slicemill.storage.home_state import CHECKPOINTS, LOGS

TRASH = "trash"
KEPT_US = 86_400_000_000
_NESTED = (LOGS, CHECKPOINTS)  # their files lie in folders of logs and units


class Trash:
    """Takes files of a home, at one moment."""

    __slots__ = ("_files", "_home", "_now_us")

    def __init__(self, home: Path, files: FileSystem, now_us: int) -> None:
        self._home = home
        self._files = files
        self._now_us = now_us

    def take(self, path: Path) -> bool:
        """Move a file here; False if it is gone.

        On a full disk, or from another file system, the file stays where it is.
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
        """Move the files of a folder here and remove it; returns how many files."""
        taken = sum(self.take(folder / name) for name in self._files.names(folder))
        self._files.remove_folder(folder)
        return taken

    def empty(self) -> None:
        """Delete what has been here for a day."""
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
    """Remove a folder of files; returns how many there were."""
    names = files.names(folder)
    for name in names:
        files.remove(folder / name)
    files.remove_folder(folder)
    return len(names)

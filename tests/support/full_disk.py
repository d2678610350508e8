"""A disk that is full: played by refusing what needs space, or a small file system that is filled."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from slicemill.storage.filesystem import LocalAppendFile, LocalFiles

_NEED_SPACE = (
    (LocalAppendFile, "write"),
    (LocalFiles, "write"),
    (LocalFiles, "append"),
    (LocalFiles, "make_folder"),
)


class FullDisk:
    """While `full`, whatever needs space is refused, after half of it was written."""

    def __init__(self) -> None:
        self.full = False

    def refused(
        self, operation: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        if not self.full:
            return operation(*arguments, **named)
        if isinstance(arguments[-1], bytes):
            operation(*arguments[:-1], arguments[-1][: len(arguments[-1]) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def disk_that_fills() -> Iterator[FullDisk]:
    disk = FullDisk()
    with pytest.MonkeyPatch.context() as patched:
        for owner, name in _NEED_SPACE:
            original = getattr(owner, name)

            def watched(*arguments: Any, _original: Callable[..., Any] = original, **named: Any) -> Any:
                return disk.refused(_original, arguments, named)

            patched.setattr(owner, name, watched)
        yield disk


@contextmanager
def small_file_system(folder: Path, size: str) -> Iterator[Path]:
    """A file system of a size in a folder; skips the test where none can be mounted."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root can mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill a file system to its last byte; removing the file that is returned frees it."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as out:
        size = 1 << 16
        while size:
            try:
                out.write(b"x" * size)
            except OSError:
                size //= 2
    return ballast

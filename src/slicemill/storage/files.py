"""The file operations of commits, behind one protocol.

There are two kinds of files in a home. Segments and the journal are only appended to: what was written stays,
and a crash leaves a part of the last append. All others appear whole or not at all: written under a temporary
name and then renamed, as databases do it.

Two levels of safety. A process may be killed at any instruction, always: the kernel keeps what was written.
A machine may lose power only where files are synced: content before it is named, and the folder after, which
costs a few milliseconds on most disks.

All of it goes through a `FileSystem`, so that a test can stop the world before, in and after each step.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.time import wall_clock_us

TEMPORARY = ".tmp"

# File systems allow 255 bytes in a name; suffixes and temporary names need some of them.
_LONGEST_NAME = 150
_CAPITAL = re.compile("[A-Z]")

PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class StorageFull(SlicemillError):
    """The disk, or a quota on it, is full; what was asked for has not happened and can be asked for again."""


@dataclass(frozen=True, slots=True)
class FileStat:
    bytes: int
    modified_us: int


class AppendFile(Protocol):
    """A file that is open for appending; one process at a time has it."""

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append all of the data; an error or a crash leaves any part of it."""

    def cut(self, size: int) -> None:
        """Shorten the file to a size."""

    def sync(self) -> None:
        """Make content and size survive a loss of power (fdatasync)."""

    def is_removed(self) -> bool:
        """Return True if the file was removed, or moved elsewhere, since it was opened."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """The steps that commits are made of. A missing file is a FileNotFoundError, except in `remove`."""

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """So many bytes from an offset on, or all; fewer if the file ends before."""

    def map(self, path: Path) -> pa.Buffer:
        """The file's content as it is now, without copying it."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none if the folder does not exist."""

    def stat(self, path: Path) -> FileStat: ...

    def append(self, path: Path, new: bool = False) -> AppendFile:
        """Open a file for appending, made if missing; FileExistsError if it must be new and is not."""

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        """Create or overwrite; a crash leaves any part of the data."""

    def sync(self, path: Path) -> None:
        """Make a file's content, or a folder's names, survive a loss of power."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename, over what is there."""

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""

    def make_folder(self, path: Path) -> None:
        """Make one folder if it is not there; its parent must be."""

    def remove_folder(self, path: Path) -> None:
        """Remove a folder if it is there and empty."""


def now_us() -> int:
    """The time of this process, which never goes back."""
    return wall_clock_us()


def unique_name() -> str:
    """A file name part that no other process ever makes."""
    return uuid.uuid4().hex


def folder_name(name: str) -> str:
    """A name as that of a file or folder: whatever a user calls something, it is one name in one folder.

    Plain names are as they are, others are spelled as in a URL. Long ones, and those with capital letters,
    which are no other than small ones for some file systems, get a digest.

    >>> folder_name("hot_items"), folder_name("select from bid"), folder_name("../x"), folder_name("Bid")
    ('hot_items', 'select%20from%20bid', '%2E.%2Fx', 'Bid~a30b5d49')
    """
    # What is behind a tilde is ours.
    quoted = quote(name, safe="", errors="surrogatepass").replace("~", "%7E") or "%"
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _LONGEST_NAME and not _CAPITAL.search(name):
        return quoted
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    digits = 8 if len(quoted) < _LONGEST_NAME - 8 else 24
    return f"{quoted[: _LONGEST_NAME - 25] if digits > 8 else quoted}~{digest[:digits]}"


def open_private(path: Path) -> int:
    """A descriptor of a file in a home, to read and append; nobody but its owner can."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)


@contextmanager
def telling_full(path: Path) -> Iterator[None]:
    """Raise StorageFull, which says what to do, where the operating system says that there is no space."""
    try:
        yield
    except OSError as problem:
        if is_full(problem):
            raise full_message(path) from problem
        raise


def is_full(problem: OSError) -> bool:
    """Return True if a disk, a quota or a limit on the size of files has no space left."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def full_message(path: Path) -> StorageFull:
    return StorageFull(f"no space is left for {path}; free some, nothing is lost and work goes on then")


def write_whole(files: FileSystem, path: Path, data: bytes | pa.Buffer, durable: bool = False) -> None:
    """Create or replace a file: readers see the old content or the new, never a part."""
    temporary = path.with_name(f"{path.name}.{unique_name()}{TEMPORARY}")
    try:
        files.write(temporary, data)
        if durable:
            files.sync(temporary)
        files.replace(temporary, path)
    except OSError:
        files.remove(temporary)
        raise
    if durable:
        files.sync(path.parent)


def ensure_folder(files: FileSystem, folder: Path, durable: bool = False) -> None:
    """Make a folder and its parents."""
    try:
        files.make_folder(folder)
    except FileNotFoundError:
        ensure_folder(files, folder.parent, durable)
        files.make_folder(folder)
    if durable:
        files.sync(folder.parent)


def remove_temporary(files: FileSystem, folder: Path) -> None:
    """Remove what crashes left of files that were being written whole; nobody may be writing there."""
    for name in files.names(folder):
        if name.endswith(TEMPORARY):
            files.remove(folder / name)


def exists(files: FileSystem, path: Path) -> bool:
    try:
        files.stat(path)
    except FileNotFoundError:
        return False
    return True


class LocalAppendFile:
    """A descriptor of the operating system, opened with O_APPEND."""

    __slots__ = ("_descriptor", "_inode", "_path")

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._inode = os.fstat(descriptor).st_ino

    def write(self, data: bytes | pa.Buffer) -> None:
        size = len(data)
        written = os.write(self._descriptor, data)
        if written < size:
            # One write may stop short: above 2 GiB always, on a full disk at any size.
            rest = memoryview(data)[written:]
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def cut(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def is_removed(self) -> bool:
        try:
            return os.stat(self._path).st_ino != self._inode  # noqa: PTH116 - before each append
        except FileNotFoundError:
            return True

    def close(self) -> None:
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The operating system's files; who may read new ones, less what the process's umask takes away."""

    folder_mode: int = PRIVATE_FOLDER
    file_mode: int = _PRIVATE_FILE

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            wanted = os.fstat(descriptor).st_size - offset if length is None else length
            if wanted <= 0:
                return b""
            first = os.pread(descriptor, wanted, offset)
            if len(first) == wanted:
                return first
            parts = [first]
            while parts[-1] and (missing := wanted - sum(map(len, parts))):
                parts.append(os.pread(descriptor, missing, offset + wanted - missing))
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def map(self, path: Path) -> pa.Buffer:
        # Closing gives the descriptor back; the mapping lives as long as a buffer of it does.
        with pa.memory_map(os.fspath(path)) as mapped:
            return mapped.read_buffer()

    def names(self, folder: Path) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return [entry.name for entry in entries]
        except FileNotFoundError:
            return []

    def stat(self, path: Path) -> FileStat:
        found = path.stat()
        return FileStat(found.st_size, found.st_mtime_ns // 1_000)

    def append(self, path: Path, new: bool = False) -> LocalAppendFile:
        exclusive = os.O_EXCL if new else 0
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | exclusive
        return LocalAppendFile(os.open(path, flags, self.file_mode), path)

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        descriptor = os.open(path, flags, self.file_mode)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
        finally:
            os.close(descriptor)

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        path.mkdir(self.folder_mode, exist_ok=True)

    def remove_folder(self, path: Path) -> None:
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


# What a home holds is its owner's alone; what sinks write for others is as the umask says.
LOCAL = LocalFiles()
SHARED = LocalFiles(0o777, 0o666)

"""File operations on home directories: append, sync, rename, remove.

A home directory has two kinds of files. Segments (files of rows) and the journal are append-only, so a crash
can only damage the last append. All other files are written under a temporary name and then renamed, so they
appear whole or not at all.

There are two levels of safety. If a process is killed, at any instruction, no written data is lost, because
the operating system keeps it. If the power fails, only synced data survives. So the content of a file is
synced before the rename, and its folder after the rename. Each sync takes a few milliseconds on most disks.

All operations use a `FileSystem`, so that a test can inject an error before, in and after each step.
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

# Maximum length of an encoded name; file systems allow 255 bytes, including suffixes of slicemill.
_LONGEST_NAME = 150
_CAPITAL = re.compile("[A-Z]")

PRIVATE_FOLDER, _PRIVATE_FILE = 0o700, 0o600


class StorageFull(SlicemillError):
    """Error: the disk or the quota is full. No file has changed, and a retry is possible."""


@dataclass(frozen=True, slots=True)
class FileStat:
    bytes: int
    modified_us: int


class AppendFile(Protocol):
    """File that one process has open for appending."""

    def write(self, data: bytes | pa.Buffer) -> None:
        """Append data to the file. After a failure the file may have any part of the data."""

    def cut(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self) -> None:
        """Sync content and size of the file to disk (fdatasync), so that they survive a loss of power."""

    def is_removed(self) -> bool:
        """Return True if the open file has been removed or renamed."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """File operations with which home directories are read and written.

    Operations on a missing file raise FileNotFoundError, except `remove`.
    """

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        """Return up to `length` bytes of a file from an offset, fewer at the end of the file."""

    def map(self, path: Path) -> pa.Buffer:
        """Map a file into memory, and return its current content without a copy."""

    def names(self, folder: Path) -> list[str]:
        """Return the file names in a folder, unordered; none if the folder is missing."""

    def stat(self, path: Path) -> FileStat: ...

    def append(self, path: Path, new: bool = False) -> AppendFile:
        """Open a file for appending, creating it if missing.

        If `new` is True, an existing file raises FileExistsError.
        """

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        """Create or overwrite a file. After a crash the file may have any part of the data."""

    def sync(self, path: Path) -> None:
        """Sync a file's content, or the names in a folder, to disk."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file, replacing the target file."""

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""

    def make_folder(self, path: Path) -> None:
        """Create one folder unless it exists; its parent must exist."""

    def remove_folder(self, path: Path) -> None:
        """Remove a folder if it exists and is empty."""


def now_us() -> int:
    """Return the current time in µs since 1970. It never decreases within a process."""
    return wall_clock_us()


def unique_name() -> str:
    """Return a globally unique file name."""
    return uuid.uuid4().hex


def folder_name(name: str) -> str:
    """Encode the name of a log, task or table as the name of a file or folder.

    Characters other than letters, digits, `_`, `-` and `.` are percent-encoded. A digest is appended to long
    names, and to names with capital letters, because some file systems ignore case.

    >>> folder_name("hot_items"), folder_name("select from bid"), folder_name("../x"), folder_name("Bid")
    ('hot_items', 'select%20from%20bid', '%2E.%2Fx', 'Bid~a30b5d49')
    """
    # Suffixes of slicemill start with a tilde, so tildes in names are encoded.
    quoted = quote(name, safe="", errors="surrogatepass").replace("~", "%7E") or "%"
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if len(quoted) <= _LONGEST_NAME and not _CAPITAL.search(name):
        return quoted
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    digits = 8 if len(quoted) < _LONGEST_NAME - 8 else 24
    return f"{quoted[: _LONGEST_NAME - 25] if digits > 8 else quoted}~{digest[:digits]}"


def open_private(path: Path) -> int:
    """Open a file for reading and appending. A new file is accessible for the owner only."""
    return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _PRIVATE_FILE)


@contextmanager
def raise_storage_full(path: Path) -> Iterator[None]:
    """Convert "no space left" errors of the operating system to StorageFull."""
    try:
        yield
    except OSError as problem:
        if is_full(problem):
            raise full_message(path) from problem
        raise


def is_full(problem: OSError) -> bool:
    """Return True if an error means that disk, quota or file size limit is exhausted."""
    return problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def full_message(path: Path) -> StorageFull:
    return StorageFull(f"no space is left for {path}; free some, nothing is lost and work goes on then")


def write_atomically(files: FileSystem, path: Path, data: bytes | pa.Buffer, durable: bool = False) -> None:
    """Create or replace a file atomically: after a crash it has the old or the new content."""
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
    """Create a folder and its missing parents."""
    try:
        files.make_folder(folder)
    except FileNotFoundError:
        ensure_folder(files, folder.parent, durable)
        files.make_folder(folder)
    if durable:
        files.sync(folder.parent)


def remove_temporary(files: FileSystem, folder: Path) -> None:
    """Remove temporary files of crashed writers.

    No process may be writing to the folder.
    """
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
    """Local file that is open for appending (O_APPEND)."""

    __slots__ = ("_descriptor", "_inode", "_path")

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self._path = path
        self._inode = os.fstat(descriptor).st_ino

    def write(self, data: bytes | pa.Buffer) -> None:
        size = len(data)
        written = os.write(self._descriptor, data)
        if written < size:
            # The operating system writes only a part of data above 2 GiB, and may do so on a full disk.
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
    """File operations on local files. The umask restricts the access modes of new files."""

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
        # Closing releases the file descriptor. The mapping stays valid while a buffer references it.
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


# Files of a home directory are private to its owner.
# Files that sinks write for other users follow the umask.
LOCAL = LocalFiles()
SHARED = LocalFiles(0o777, 0o666)

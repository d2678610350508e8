"""Atomic, crash-safe file operations on a local or shared POSIX folder.

Everything durable in slicemill is a file that appears whole or not at all. The technique is the one that
databases and Spark's own checkpoints use: write under a temporary name, then name the file in one step.
`write_whole` renames over what was there; `create_whole` links instead, which fails if the name is taken, so
it is a compare-and-set between processes as well. (The folder's file system must therefore know hard links.)

Two levels of safety. A process may be killed at any instruction, always: the kernel keeps what was written.
A machine may lose power only where `durable=True`: then content is synced before it is named, and the folder
after, which costs a few milliseconds per commit on most disks.

All of it goes through a `FileSystem`, so that a test can stop the world before and after each step.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

TEMPORARY = ".tmp"

# A file that nobody names may still belong to a writer at work: longer than this a Spark task does not take
# from its first file to the driver's commit. On a shared folder it also has to cover the clocks' difference.
GRACE_US = 600_000_000


@dataclass(frozen=True, slots=True)
class FileStat:
    bytes: int
    modified_us: int


class FileSystem(Protocol):
    """The steps that commits are made of. A missing file is a FileNotFoundError, except in `remove`."""

    def read(self, path: Path) -> bytes: ...

    def map(self, path: Path) -> pa.Buffer:
        """The file's content without copying it."""

    def names(self, folder: Path) -> list[str]:
        """The names in a folder, in no order; none if the folder does not exist."""

    def stat(self, path: Path) -> FileStat: ...

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        """Create or overwrite; a crash leaves any part of the data."""

    def sync(self, path: Path) -> None:
        """Make a file's content, or a folder's names, survive a loss of power."""

    def replace(self, source: Path, target: Path) -> None:
        """Rename, over what is there."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; FileExistsError if the name is taken."""

    def remove(self, path: Path) -> None:
        """Remove a file if it is there."""

    def make_folder(self, path: Path) -> None:
        """Make one folder if it is not there; its parent must be."""


def now_us() -> int:
    """The wall clock."""
    return time.time_ns() // 1_000


def unique_name() -> str:
    """A file name part that no other process ever makes."""
    return uuid.uuid4().hex


def write_whole(files: FileSystem, path: Path, data: bytes, durable: bool = False) -> None:
    """Create or replace a file: readers see the old content or the new, never a part."""
    temporary = _write_temporary(files, path, data, durable)
    files.replace(temporary, path)
    if durable:
        files.sync(path.parent)


def create_whole(files: FileSystem, path: Path, data: bytes, durable: bool = False) -> None:
    """Create a file that must not exist: of several callers, in any process, one succeeds.

    The others get FileExistsError.
    """
    temporary = _write_temporary(files, path, data, durable)
    try:
        files.link(temporary, path)
        if durable:
            files.sync(path.parent)
    finally:
        files.remove(temporary)


def _write_temporary(files: FileSystem, path: Path, data: bytes, durable: bool) -> Path:
    temporary = path.with_name(f"{path.name}.{unique_name()}{TEMPORARY}")
    files.write(temporary, data)
    if durable:
        files.sync(temporary)
    return temporary


def ensure_folder(files: FileSystem, folder: Path, durable: bool = False) -> None:
    """Make a folder and its parents."""
    try:
        files.make_folder(folder)
    except FileNotFoundError:
        ensure_folder(files, folder.parent, durable)
        files.make_folder(folder)
    if durable:
        files.sync(folder.parent)


def list_files(files: FileSystem, folder: Path, part: str) -> list[str]:
    """The paths of the files in `folder / part`, relative to `folder`."""
    return [f"{part}/{name}" if part else name for name in files.names(folder / part)]


def is_orphan(path: str, part: str, named: Collection[str]) -> bool:
    """Is this a temporary file, or one in the subfolder `part` that nobody names?"""
    return path.endswith(TEMPORARY) or (path.startswith(f"{part}/") and path not in named)


def remove_old(files: FileSystem, folder: Path, paths: Iterable[str], modified_before_us: int) -> list[str]:
    """Remove the files last written at or before a time, and say which those were."""
    removed = []
    for path in paths:
        try:
            if files.stat(folder / path).modified_us > modified_before_us:
                continue
        except FileNotFoundError:
            continue
        files.remove(folder / path)
        removed.append(path)
    return removed


class LocalFiles:
    """The operating system's files."""

    __slots__ = ()

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

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

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        with path.open("wb", buffering=0) as stream:
            # One write may stop short: above 2 GiB always, on a full disk at any size.
            rest = memoryview(data)
            while rest:
                rest = rest[stream.write(rest) :]

    def sync(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        target.hardlink_to(source)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def make_folder(self, path: Path) -> None:
        path.mkdir(exist_ok=True)


LOCAL = LocalFiles()

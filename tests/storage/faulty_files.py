"""File systems with injected failures: a crash at a given step, a full disk, and files in memory."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from slicemill.storage.filesystem import AppendFile, FileStat, FileSystem

# Number of bytes of a write that reach the disk before the process dies.
PARTS: dict[str, Callable[[int], int]] = {
    "before": lambda size: 0,
    "first byte": lambda size: min(size, 1),
    "half": lambda size: size // 2,
    "all but one byte": lambda size: size - 1,
    "after": lambda size: size,
}


class Crashed(BaseException):
    """Simulated death of the process; only tests may catch it."""


@dataclass
class FaultyAppend:
    """File open for appending, each of whose operations may fail."""

    inner: AppendFile
    step: Callable[..., Any]

    def write(self, data: bytes | pa.Buffer) -> None:
        self.step("append", self.inner.write, data)

    def cut(self, size: int) -> None:
        self.step("cut", self.inner.cut, size)

    def sync(self) -> None:
        self.step("fdatasync", self.inner.sync)

    def is_removed(self) -> bool:
        return self.inner.is_removed()

    def close(self) -> None:
        self.inner.close()


@dataclass
class FaultyFiles:
    """Pass each operation, also on files open for appending, to `_step`."""

    inner: FileSystem

    def append(self, path: Path, new: bool = False) -> AppendFile:
        opened = self._step("open", self.inner.append, path, new)
        return FaultyAppend(opened, partial(self._step_on, path))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._step, name, getattr(self.inner, name))

    def _step_on(self, path: Path, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        return self._step(name, operation, *arguments)

    def _step(self, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        return operation(*arguments)


@dataclass
class CrashingFiles(FaultyFiles):
    """Fail before, in the middle of, or after the operation that follows `steps` others; None means never."""

    steps: int | None = None
    mode: str = "before"
    dead: bool = False
    died_in: str = ""

    def _step(self, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        if self.dead:
            raise Crashed
        if self.steps is None:
            return operation(*arguments)
        if self.steps > 0:
            self.steps -= 1
            return operation(*arguments)
        self.dead, self.died_in = True, name
        if self.mode == "after":
            operation(*arguments)
        elif name in ("write", "append"):
            *path, data = arguments
            part = PARTS[self.mode](len(data))
            if part:
                operation(*path, bytes(data)[:part])
        raise Crashed


def crashes_of(files: FileSystem) -> Iterator[CrashingFiles]:
    """Yield file systems that crash at the first step, the second, …, until the loop's body survives."""
    for mode in PARTS:
        step, survived = 0, False
        while not survived:
            crashing = CrashingFiles(files, step, mode)
            yield crashing
            step, survived = step + 1, not crashing.dead


@dataclass
class FullFiles(FaultyFiles):
    """Disk with space for `room` more operations; a full disk stores only a part of a write."""

    room: int | None = None
    part: str = "before"
    refused: int = 0

    def _step(self, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        if self.room is None or name not in ("write", "append", "open", "make_folder"):
            return operation(*arguments)
        if self.room > 0:
            self.room -= 1
            return operation(*arguments)
        self.refused += 1
        if name in ("write", "append"):
            *path, data = arguments
            operation(*path, bytes(data)[: PARTS[self.part](len(data))])
        raise OSError(errno.ENOSPC, "No space left on device")


@dataclass
class SpyFiles(FaultyFiles):
    """Record all writes and syncs in order, as (operation, name of the file or folder)."""

    seen: list[tuple[str, str]] = field(default_factory=list)

    def _step_on(self, path: Path, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        self.seen.append((name, path.name))
        return operation(*arguments)

    def _step(self, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        if name not in ("read", "map", "names", "stat"):
            self.seen.append((name, arguments[0].name))
        return operation(*arguments)


@dataclass(eq=False)
class Content:
    data: bytes
    modified_us: int
    synced: bytes = b""


@dataclass(eq=False)
class Folder:
    names: dict[str, Content | Folder] = field(default_factory=dict)
    synced: dict[str, Content | Folder] = field(default_factory=dict)


@dataclass
class MemoryAppend:
    content: Content
    names: dict[str, Content | Folder]
    name: str

    def write(self, data: bytes | pa.Buffer) -> None:
        self.content.data += bytes(data)

    def cut(self, size: int) -> None:
        self.content.data = self.content.data[:size]

    def sync(self) -> None:
        self.content.synced = self.content.data

    def is_removed(self) -> bool:
        return self.names.get(self.name) is not self.content

    def close(self) -> None:
        pass


@dataclass
class MemoryFiles:
    """POSIX files in memory. A power failure may keep, lose or truncate data that was not synced."""

    clock: Callable[[], int] = lambda: 0
    root: Folder = field(default_factory=Folder)

    def _folder(self, path: Path) -> Folder:
        folder: Content | Folder = self.root
        for part in path.parts[1:]:
            if not isinstance(folder, Folder) or part not in folder.names:
                raise FileNotFoundError(path)
            folder = folder.names[part]
        assert isinstance(folder, Folder)
        return folder

    def _content(self, path: Path) -> Content:
        found = self._folder(path.parent).names.get(path.name)
        if not isinstance(found, Content):
            raise FileNotFoundError(path)
        return found

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        data = self._content(path).data
        return data[offset:] if length is None else data[offset : offset + length]

    def map(self, path: Path) -> pa.Buffer:
        return pa.py_buffer(self._content(path).data)

    def names(self, folder: Path) -> list[str]:
        try:
            return list(self._folder(folder).names)
        except FileNotFoundError:
            return []

    def stat(self, path: Path) -> FileStat:
        found = self._content(path)
        return FileStat(len(found.data), found.modified_us)

    def append(self, path: Path, new: bool = False) -> MemoryAppend:
        names = self._folder(path.parent).names
        if new and path.name in names:
            raise FileExistsError(path)
        found = names.setdefault(path.name, Content(b"", self.clock()))
        assert isinstance(found, Content)
        return MemoryAppend(found, names, path.name)

    def write(self, path: Path, data: bytes | pa.Buffer) -> None:
        names = self._folder(path.parent).names
        found = names.setdefault(path.name, Content(b"", 0))
        assert isinstance(found, Content)
        found.data, found.modified_us = bytes(data), self.clock()

    def sync(self, path: Path) -> None:
        found = self.root if path == Path(path.root) else self._folder(path.parent).names[path.name]
        if isinstance(found, Folder):
            found.synced = dict(found.names)
        else:
            found.synced = found.data

    def replace(self, source: Path, target: Path) -> None:
        found = self._content(source)
        self._folder(target.parent).names[target.name] = found
        del self._folder(source.parent).names[source.name]

    def remove(self, path: Path) -> None:
        self._folder(path.parent).names.pop(path.name, None)

    def make_folder(self, path: Path) -> None:
        self._folder(path.parent).names.setdefault(path.name, Folder())

    def remove_folder(self, path: Path) -> None:
        found = self._folder(path.parent).names.get(path.name)
        if isinstance(found, Folder) and not found.names:
            del self._folder(path.parent).names[path.name]

    def lose_power(self, dice: random.Random) -> None:
        _lose_names(self.root, dice)
        for content in dict.fromkeys(_contents(self.root)):
            if content.data != content.synced:
                cut = content.data[: dice.randrange(len(content.data) + 1)]
                # Appended data may be lost, but the synced part of a file stays.
                if content.data.startswith(content.synced) and len(cut) < len(content.synced):
                    cut = content.synced
                content.data = dice.choice([content.synced, content.data, cut])
            content.synced = content.data


def _lose_names(folder: Folder, dice: random.Random) -> None:
    # Iterate in order of creation, which a seed repeats; the names are random.
    for name in folder.names | folder.synced:
        kept = dice.choice([folder.names, folder.synced])
        if name in kept:
            folder.names[name] = kept[name]
        else:
            folder.names.pop(name, None)
    folder.synced = dict(folder.names)
    for child in folder.names.values():
        if isinstance(child, Folder):
            _lose_names(child, dice)


def _contents(folder: Folder) -> Iterator[Content]:
    for child in folder.names.values():
        if isinstance(child, Folder):
            yield from _contents(child)
        else:
            yield child

"""File systems that fail on purpose: one that stops at a given step, and one in memory that loses power."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from slicemill.storage.files import FileStat, FileSystem

MODES = ("before", "torn", "after")


class Crashed(BaseException):
    """The process is dead; nothing may catch this but a test."""


@dataclass
class CrashingFiles:
    """Passes `steps` operations on, and dies before, in the middle of, or after the next; None: never."""

    inner: FileSystem
    steps: int | None = None
    mode: str = "before"
    dead: bool = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._step, name, getattr(self.inner, name))

    def _step(self, name: str, operation: Callable[..., Any], *arguments: Any) -> Any:
        if self.dead:
            raise Crashed
        if self.steps is None:
            return operation(*arguments)
        if self.steps > 0:
            self.steps -= 1
            return operation(*arguments)
        self.dead = True
        if self.mode == "after":
            operation(*arguments)
        elif self.mode == "torn" and name == "write":
            path, data = arguments
            operation(path, bytes(data)[: len(data) // 2])
        raise Crashed


def crashes_of(files: FileSystem) -> Iterator[CrashingFiles]:
    """Dies at the first step, then the second, … in each way, until a run of the loop's body survives."""
    for mode in MODES:
        step, survived = 0, False
        while not survived:
            crashing = CrashingFiles(files, step, mode)
            yield crashing
            step, survived = step + 1, not crashing.dead


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
class MemoryFiles:
    """POSIX files in memory. What was not synced may, at a loss of power, be kept, lost or cut short."""

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

    def read(self, path: Path) -> bytes:
        return self._content(path).data

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

    def link(self, source: Path, target: Path) -> None:
        names = self._folder(target.parent).names
        if target.name in names:
            raise FileExistsError(target)
        names[target.name] = self._content(source)

    def remove(self, path: Path) -> None:
        self._folder(path.parent).names.pop(path.name, None)

    def make_folder(self, path: Path) -> None:
        self._folder(path.parent).names.setdefault(path.name, Folder())

    def lose_power(self, dice: random.Random) -> None:
        _lose_names(self.root, dice)
        for content in dict.fromkeys(_contents(self.root)):
            if content.data != content.synced:
                cut = content.data[: dice.randrange(len(content.data) + 1)]
                content.data = dice.choice([content.synced, content.data, cut])
            content.synced = content.data


def _lose_names(folder: Folder, dice: random.Random) -> None:
    # In order of creation, which a seed repeats; names are random.
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

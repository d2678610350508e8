"""Crashes of a process at any file operation, also in the middle of a write, and power failures.

Afterwards the home directory has the state before or after a commit, never a state between,
and commits that a reader has seen are not lost.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from slicemill.storage.changes import Change
from slicemill.storage.filesystem import FileSystem, ensure_folder
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.segments import ExtentFreed, SegmentWriters
from storage.faulty_files import PARTS, Crashed, CrashingFiles, MemoryFiles
from storage.homes import FOLDER, append, memory_files, small_home, view
from storage.tables import COLUMNS

# A step returns the change of one commit; it may write rows and checkpoints.
Step = Callable[[Home, SegmentWriters, FileSystem], Change]


def steps() -> list[Step]:
    """Return commits of every kind, with snapshots and freed files between them."""

    def create(home: Home, writers: SegmentWriters, files: FileSystem) -> Change:
        return Change(created={"bid": COLUMNS, "ask": COLUMNS}, catalog=[{"text": "CREATE STREAM bid"}])

    def rows(n: int) -> Step:
        def change(home: Home, writers: SegmentWriters, files: FileSystem) -> Change:
            added = {name: append(home, writers, name, n, n + 1, seq=2 * n) for name in ("bid", "ask")}
            checkpoint = home.checkpoint_folder("u")
            ensure_folder(files, checkpoint, durable=True)
            files.write(checkpoint / f"state{n}", b"some state")
            files.sync(checkpoint / f"state{n}")
            files.sync(checkpoint)
            state = {"checkpoint": [[f"state{n}", 1, 10]], "cursors": {"bid": home.epoch}}
            return Change(logs=added, tasks={"u": state}, streams={"bid": {"watermark": n}})

        return change

    def free(home: Home, writers: SegmentWriters, files: FileSystem) -> Change:
        return Change(freed={"bid": home.epoch})

    def fold(home: Home, writers: SegmentWriters, files: FileSystem) -> Change:
        upto = home.logs["bid"].epochs()[-2].number
        apart = SegmentWriters(f"base{home.epoch}", files=files)
        base = append(home, apart, "bid", 7, 8, seq=70)
        apart.sync()
        return Change(based={"bid": (upto, base)})

    def replace(home: Home, writers: SegmentWriters, files: FileSystem) -> Change:
        return Change(dropped_logs=["ask"], created={"ask": COLUMNS}, dropped_tasks=["u"])

    return [
        create,
        rows(1),
        rows(2),
        free,
        rows(3),
        replace,
        rows(4),
        rows(5),
        free,
        rows(6),
        fold,
        rows(7),
        fold,
    ]


def run(home: Home, writers: SegmentWriters, files: FileSystem, durable: bool = False) -> Iterator[int]:
    """Execute the remaining steps; yield after each commit."""
    for step in steps()[home.epoch + 1 :]:
        change = step(home, writers, files)
        if durable:
            writers.sync()
        yield home.commit(change)
        home.free(["w", "again"])


@cache
def expected() -> list[dict[str, Any]]:
    """Return the content of the home directory after each commit; the last is for epoch -1, the start."""
    files = memory_files()
    home = small_home(files)
    empty = view(home)
    writers = SegmentWriters("w", roll_bytes=800, files=files)
    return [*(copy.deepcopy(view(home)) for _ in run(home, writers, files)), empty]


def crashed_runs(mode: str, durable: bool) -> Iterator[tuple[MemoryFiles, int, HomeReader | None]]:
    """Yield runs that crashed at each operation in turn: files, last returned epoch, and a reader."""
    step, survived = 0, False
    while not survived:
        memory = memory_files()
        crashing = CrashingFiles(memory, step, mode)
        done, reader = -1, None
        try:
            home = small_home(crashing, durability="machine" if durable else "process")
            reader = HomeReader(FOLDER, memory)
            for done in run(home, SegmentWriters("w", roll_bytes=800, files=crashing), crashing, durable):
                reader.poll()
                assert view(reader) == expected()[done]
        except Crashed:
            pass
        # An operation other than a write has no middle, so "half" equals "before".
        if mode in ("before", "after") or crashing.died_in in ("write", "append", ""):
            yield memory, done, reader
        step, survived = step + 1, not crashing.dead


@pytest.mark.parametrize("mode", PARTS)
def test_a_crash_at_any_operation_leaves_the_state_before_or_after_a_commit(mode: str) -> None:
    died = 0
    for files, done, reader in crashed_runs(mode, durable=False):
        died += 1
        seen = -1
        if reader is not None:
            reader.poll()
            seen = reader.epoch
            assert seen in (done, done + 1)
            assert_seen(reader)
        home = small_home(files)
        assert home.epoch in (done, done + 1) and home.epoch >= seen
        assert view(home) == expected()[home.epoch]
        assert_nothing_left_over(files, home)
        for _ in run(home, SegmentWriters("again", roll_bytes=800, files=files), files):
            pass
        final = view(home)
        assert final == expected()[len(steps()) - 1]
        assert view(small_home(files)) == final
        if reader is not None:
            reader.poll()
            assert view(reader) == final
    assert died > 30


def assert_seen(reader: HomeReader) -> None:
    """Check a reader that polls after a crash; rows in the course of being freed may be missing."""
    try:
        assert view(reader) == expected()[reader.epoch]
    except ExtentFreed:
        reader.poll()


def assert_nothing_left_over(files: MemoryFiles, home: Home) -> None:
    assert set(files.names(FOLDER)) - {"trash"} == {"FORMAT", "checkpoints", "journal", "logs"}
    assert sorted(files.names(FOLDER / "logs")) == sorted(log.folder.name for log in home.logs.values())
    for log in home.logs.values():
        assert sorted(files.names(log.folder)) == sorted(log.segments_in_use())
    states = [name for task in home.tasks.values() for name, _, _ in task.get("checkpoint", ())]
    assert files.names(home.checkpoint_folder("u")) == states
    journal = files.names(FOLDER / "journal")
    assert len(journal) <= 8 and not any(name.endswith(".tmp") for name in journal)


@pytest.mark.parametrize("mode", ["half", "after"])
def test_a_power_failure_loses_no_returned_commit(mode: str) -> None:
    dice = random.Random(mode)
    for files, done, _ in crashed_runs(mode, durable=True):
        for _ in range(3):
            survivor = copy.deepcopy(files)
            survivor.lose_power(dice)
            home = small_home(survivor, durability="machine")
            assert home.epoch in (done, done + 1)
            assert view(home) == expected()[home.epoch]


def test_a_crash_while_a_home_directory_opens_can_be_repeated() -> None:
    for mode in PARTS:
        step, survived = 0, False
        while not survived:
            files = memory_files()
            home = small_home(files)
            writers = SegmentWriters("w", roll_bytes=800, files=files)
            for _ in run(home, writers, files):
                pass
            append(home, writers, "bid", 99)
            records = max(name for name in files.names(FOLDER / "journal") if name.endswith(".records"))
            files.append(FOLDER / "journal" / records).write(b"12345678 {")
            crashing = CrashingFiles(files, step, mode)
            with contextlib.suppress(Crashed):
                small_home(crashing)
            again = small_home(files)
            assert view(again) == expected()[len(steps()) - 1]
            assert_nothing_left_over(files, again)
            step, survived = step + 1, not crashing.dead

"""A home directory with many commits has few files and a small index, and opens in seconds."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

import numpy as np

from slicemill.storage.changes import Appended, Change
from slicemill.storage.garbage import Retention, keep_from
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.log import LogColumns
from slicemill.storage.segments import SegmentWriters
from storage.tables import COLUMNS, rows

HOUR_US = 3_600_000_000
LOGS = ("bid", "ask", "hot", "slow")


def test_a_day_of_commits_leaves_few_files_and_a_small_index(tmp_path: Path) -> None:
    rounds = 60_000
    step_us = 24 * HOUR_US // rounds
    home = Home(tmp_path, clock=lambda: now_us)
    now_us = 0
    home.open()
    home.commit(Change(created=dict.fromkeys(LOGS, COLUMNS)))
    writers = SegmentWriters("w", roll_bytes=1 << 20)
    folders = {name: home.logs[name].folder for name in LOGS}
    table = rows(1)
    most_files = most_epochs = 0
    for number in range(rounds):
        now_us += step_us
        name = LOGS[number % 3] if number % 1_000 else "slow"
        added = Appended([writers.append(folders[name], table)], now_us, now_us, now_us)
        home.commit(Change(logs={name: added}, tasks={"u": {"cursors": {name: number}}}))
        if number % 200 == 0:
            hour = Retention(age_us=HOUR_US)
            freed = {name: keep_from(log, None, hour, now_us) for name, log in home.logs.items()}
            home.commit(Change(freed=freed))
            home.free(["w"])
        if number % 10_000 == 9_999:
            most_files = max(most_files, sum(path.is_file() for path in tmp_path.rglob("*")))
            most_epochs = max(most_epochs, sum(len(log) for log in home.logs.values()))
    home.close()
    assert most_files < 40
    assert most_epochs < rounds / 24 * 1.1 + 1_000
    held = {name: log.epochs() for name, log in home.logs.items()}
    assert sum(len(epochs) for epochs in held.values()) > rounds / 24
    again = Home(tmp_path)
    again.open()
    assert {name: log.epochs() for name, log in again.logs.items()} == held
    again.close()


def test_a_home_directory_with_an_index_of_100_mb_opens_in_seconds(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.open()
    home.commit(Change(created=dict.fromkeys(LOGS, COLUMNS)))
    # The index is filled as from a snapshot; one more commit writes it to a snapshot.
    for log in home.logs.values():
        log.load(columns(epochs=70_000, extents_each=10))
    home._least_bytes = 0
    home.commit(Change(tasks={"u": {}}))
    home.close()
    assert sum(path.stat().st_size for path in (tmp_path / "journal").iterdir()) > 100e6
    began = time.process_time()
    found = HomeReader(tmp_path)
    assert time.process_time() - began < 5
    assert all(found.logs[name].rows == log.rows for name, log in home.logs.items())
    assert found.logs["ask"].epochs(after=69_990) == home.logs["ask"].epochs(after=69_990) != []


def columns(epochs: int, extents_each: int) -> LogColumns:
    """Return the index of a log with many extents."""
    numbers = np.arange(1, epochs + 1)
    extents = np.arange(epochs * extents_each)
    return LogColumns(
        [
            array("q", (numbers * factor).tobytes())
            for factor in (1, 1, 1, 1, extents_each * 10, extents_each)
        ],
        [
            array("q", column.astype(np.int64).tobytes())
            for column in (extents * 0, extents * 100, extents * 0 + 100, extents * 0 + 10)
        ],
        ["w-0.arrows"],
    )

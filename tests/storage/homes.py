"""Helpers for home directories: their content as plain values, and home directories in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from slicemill.columns.merge import time_range
from slicemill.storage.changes import Appended, Change
from slicemill.storage.filesystem import FileSystem, ensure_folder
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.segments import SegmentWriters
from storage.faulty_files import MemoryFiles
from storage.tables import rows

FOLDER = Path("/mill/home")


def memory_files() -> MemoryFiles:
    files = MemoryFiles()
    ensure_folder(files, FOLDER, durable=True)
    return files


def small_home(files: FileSystem, **options: Any) -> Home:
    """Return an open home directory in memory, with a snapshot every few records."""
    home = Home(
        FOLDER, files=files, clock=lambda: 7, snapshot_every=(600, 1_200), background=False, **options
    )
    home.open()
    return home


def append(home: Home, writers: SegmentWriters, log: str, *ts: int, seq: int = 0) -> Appended:
    """Write rows of a log; the log contains them after the returned object is committed."""
    table = rows(*ts, seq=seq)
    extent = writers.append(home.logs[log].folder, table)
    return Appended([extent], *time_range(table), arrival_us=max(ts, default=0))


def commit_rows(home: Home, writers: SegmentWriters, log: str, *ts: int, seq: int = 0) -> int:
    return home.commit(Change(logs={log: append(home, writers, log, *ts, seq=seq)}))


def view(home: Home | HomeReader) -> dict[str, Any]:
    """Return the whole content of a home directory, including rows."""
    return {
        "epoch": home.epoch,
        "units": {name: dict(task) for name, task in home.tasks.items()},
        "streams": {name: dict(stream) for name, stream in home.streams.items()},
        "statements": list(home.statements),
        "logs": {
            name: {
                "columns": log.columns.names,
                "first": log.first,
                "head": log.head,
                "max_ts": log.max_ts,
                "rows": log.rows,
                "epochs": [
                    (epoch.number, epoch.rows, epoch.min_ts, epoch.max_ts, epoch.arrival_us)
                    for epoch in log.epochs()
                ],
                "tuples": [
                    (epoch.number, *row.values())
                    for epoch in log.epochs()
                    for row in log.read(epoch).to_pylist()
                ],
            }
            for name, log in home.logs.items()
        },
    }

"""The check of a home: all files that its journal names exist and can be read.

Nothing is changed, and a mill may be at work in the home meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from slicemill.storage.epochs import Epoch
from slicemill.storage.files import LOCAL, FileSystem
from slicemill.storage.home_format import CURRENT
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import CHECKPOINT_FIELD, TABLES
from slicemill.storage.journal import Progress
from slicemill.storage.log import Log
from slicemill.storage.segments import ExtentGone, SegmentError, read_extent
from slicemill.storage.table_files import read_table_file


@dataclass(slots=True)
class HomeReport:
    """What a home holds, and what is wrong with it."""

    folder: Path
    format: int
    epoch: int
    committed_us: int
    logs: int
    rows: int
    bytes: int
    units: int
    statements: int
    torn: int  # bytes of a commit that a crash cut short; the next start removes them
    mistakes: list[str] = field(default_factory=list)


def check_home(folder: Path, files: FileSystem = LOCAL, progress: Progress = lambda _: None) -> HomeReport:
    """Read all that the journal of a home names; raises only if the journal itself cannot be read."""
    home = HomeReader(folder, files)
    report = HomeReport(
        folder,
        CURRENT,
        home.epoch,
        home.committed_us,
        len(home.logs),
        sum(log.rows for log in home.logs.values()),
        sum(log.bytes for log in home.logs.values()),
        len(home.units),
        len(home.statements),
        home.torn,
    )
    for name in sorted(home.logs):
        progress(f"log {name}: {home.logs[name].rows:,} rows")
        report.mistakes += _log_mistakes(home, name, files)
    for name in sorted(home.units):
        progress(f"unit {name}")
        report.mistakes += _unit_mistakes(home, name, files)
    for name, file in sorted(home.tables.items()):
        report.mistakes += _table_mistakes(home, name, file, files)
    return report


def _log_mistakes(home: HomeReader, name: str, files: FileSystem) -> Iterator[str]:
    log = home.logs[name]
    for epoch in log.all_epochs():
        for mistake in _epoch_mistakes(log, epoch, files):
            home.poll()
            now = home.logs.get(name)
            # A mill at work may have freed the rows since they were looked up.
            if now is not None and now.folder == log.folder and now.first <= epoch.number:
                yield f"log {name}, epoch {epoch.number}: {mistake}"


def _epoch_mistakes(log: Log, epoch: Epoch, files: FileSystem) -> Iterator[str]:
    for extent in epoch.extents:
        try:
            read_extent(log.folder, extent, files).validate(full=True)
        except ExtentGone:
            yield f"segment {extent.segment} is missing"
        except (SegmentError, pa.ArrowInvalid) as problem:
            yield str(problem)


def _unit_mistakes(home: HomeReader, name: str, files: FileSystem) -> Iterator[str]:
    for path, size in _checkpoint_sizes(home.units[name]):
        mistake = _file_mistake(home.checkpoint_folder(name) / path, size, files)
        if mistake:
            home.poll()
            if (path, size) in _checkpoint_sizes(home.units.get(name, {})):
                yield f"unit {name}: checkpoint file {path} {mistake}"


def _table_mistakes(home: HomeReader, name: str, file: str, files: FileSystem) -> Iterator[str]:
    part: str | None = file
    try:
        while part is not None:
            version = read_table_file(files, home.folder / TABLES / part)
            version.rows.validate(full=True)
            part = version.parent
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        home.poll()
        if home.tables.get(name) == file:
            missing = isinstance(problem, FileNotFoundError)
            yield f"table {name}: file {part} {'is missing' if missing else f'is damaged: {problem}'}"


def _file_mistake(path: Path, size: int, files: FileSystem) -> str:
    try:
        found = files.stat(path).bytes
    except FileNotFoundError:
        return "is missing"
    return "" if found == size else f"has {found} bytes instead of {size}"


def _checkpoint_sizes(unit: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The files of a unit's checkpoints with their sizes: [path, …, bytes] in the journal."""
    for name, value in unit.items():
        if name.startswith(CHECKPOINT_FIELD):
            yield from _sizes(value)


def _sizes(value: object) -> Iterator[tuple[str, int]]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _sizes(inner)
    elif isinstance(value, list) and value:
        if isinstance(value[0], str) and isinstance(value[-1], int):
            yield value[0], value[-1]
        else:
            for inner in value:
                yield from _sizes(inner)

"""Check and repair of a home directory: verify all files that its journal references.

All files with a checksum are read and verified. Files of FORMAT 5 have no checksum. They are counted as
unverified, and only decoding errors are found in them. A check changes nothing, and the engine may run in the
home directory meanwhile. An *extent* is a range of bytes with rows in a file of a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from slicemill.storage.changes import Change, split_lines
from slicemill.storage.checkpoints import damage
from slicemill.storage.filesystem import LOCAL, FileSystem
from slicemill.storage.home import Home, read_format, require_home
from slicemill.storage.home_reader import HomeReader
from slicemill.storage.home_state import (
    BEFORE,
    CHECKPOINT,
    CHECKPOINT_FIELD,
    SINCE_CHECKPOINT,
    TABLES,
    SnapshotDamaged,
    fallback_fields,
)
from slicemill.storage.journal import (
    JOURNAL,
    RECORDS,
    SNAPSHOT,
    Progress,
    bases,
    missing_commits,
    read_end,
    read_snapshot,
    records_path,
    snapshot_path,
)
from slicemill.storage.log import Epoch, Log, lost_rows
from slicemill.storage.segments import UNVERIFIED, Extent, ExtentDamaged, ExtentFreed, SegmentReader
from slicemill.storage.table_files import TableDamaged, read_table_file


@dataclass(slots=True)
class Damage:
    """Unreadable parts of a home directory, for `repair_home`."""

    extents: dict[str, list[Extent]] = field(default_factory=dict)  # unreadable rows by log
    checkpoints: dict[str, set[str]] = field(default_factory=dict)  # checkpoint fields with damage, by task
    tables: list[str] = field(default_factory=list)  # names of tables with unreadable rows


@dataclass(slots=True)
class HomeReport:
    """Content of a home directory, and the damage that a check found."""

    folder: Path
    format: int
    epoch: int
    committed_us: int
    logs: int
    rows: int
    bytes: int
    tasks: int
    statements: int
    torn: int  # number of bytes of an incomplete last commit, which the next start removes
    unverified: int = 0  # number of extents and files without a checksum
    errors: list[str] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)


def check_home(folder: Path, files: FileSystem = LOCAL, progress: Progress = lambda _: None) -> HomeReport:
    """Verify all files of a home directory; raise only if the journal of commits cannot be read."""
    # The end of the journal is read before the records, because a running engine may append records.
    end = read_end(folder / JOURNAL, files)
    home = HomeReader(folder, files)
    report = HomeReport(
        folder,
        read_format(folder, files) or 0,
        home.epoch,
        home.committed_us,
        len(home.logs),
        sum(log.rows for log in home.logs.values()),
        sum(log.bytes for log in home.logs.values()),
        len(home.tasks),
        len(home.statements),
        home.torn,
    )
    missing = missing_commits(folder, home.epoch, home.torn, end)
    if missing is not None:
        report.errors.append(missing.words)
    report.errors += _journal_errors(home, files)
    for name in sorted(home.logs):
        progress(f"log {name}: {home.logs[name].rows:,} rows")
        report.errors += _log_errors(home, name, files, report)
    for name in sorted(home.tasks):
        progress(f"task {name}")
        report.errors += _task_errors(home, name, files, report)
    for name, file in sorted(home.tables.items()):
        report.errors += _table_errors(home, name, file, files, report)
    return report


def _journal_errors(home: HomeReader, files: FileSystem) -> Iterator[str]:
    """Verify the older journal files, which are not read when a home directory is opened."""
    names = files.names(home.folder / JOURNAL)
    for base in bases(names, SNAPSHOT):
        path = snapshot_path(home.folder, base)
        try:
            read_snapshot(home.folder, files, path)
        except SnapshotDamaged as problem:
            yield f"{path} is damaged: {problem}; another snapshot, or the records, replace it"
        except FileNotFoundError:
            continue  # a running engine has removed the old snapshot
    listed = bases(names, RECORDS)
    for base in listed[:-1]:
        path = records_path(home.folder, base)
        try:
            data = files.read(path)
        except FileNotFoundError:
            continue
        if (end := split_lines(data).end) < len(data):
            yield f"{path} is damaged at byte {end}; a later snapshot contains the commits of this file"


def _log_errors(home: HomeReader, name: str, files: FileSystem, report: HomeReport) -> Iterator[str]:
    log, reader = home.logs[name], SegmentReader(files)
    for epoch in log.all_epochs():
        for extent in epoch.extents:
            if not extent.rows:
                continue  # a repair has dropped the rows of the extent
            report.unverified += extent.crc == UNVERIFIED
            mistake = _extent_error(log, epoch, extent, reader)
            if not mistake:
                continue
            home.poll()
            now = home.logs.get(name)
            # A running engine may have deleted the rows since the index of the log was read.
            if now is not None and now.folder == log.folder and now.first <= epoch.number:
                report.damage.extents.setdefault(name, []).append(extent)
                yield f"log {name}: {mistake}"


def _extent_error(log: Log, epoch: Epoch, extent: Extent, reader: SegmentReader) -> str:
    try:
        reader.read(log.folder, extent).validate(full=True)
    except ExtentFreed:
        return f"segment {extent.segment} is missing, with {extent.rows:,} rows of epoch {epoch.number}"
    except ExtentDamaged as problem:
        part = epoch._replace(extents=(extent,), rows=extent.rows)
        return str(lost_rows(log.folder, [part], problem))
    except pa.ArrowException as problem:
        return f"segment {extent.segment}, with {extent.rows:,} rows of epoch {epoch.number}: {problem}"
    return ""


def _task_errors(home: HomeReader, name: str, files: FileSystem, report: HomeReport) -> Iterator[str]:
    for field_name, entry in _checkpoint_files(home.tasks[name]):
        mistake = damage(home.checkpoint_folder(name), entry, files)
        report.unverified += len(entry) == 2
        if mistake:
            home.poll()
            if (field_name, entry) in _checkpoint_files(home.tasks.get(name, {})):
                report.damage.checkpoints.setdefault(name, set()).add(field_name)
                yield f"task {name}: {field_name} file {entry[0]} {mistake}"


def _table_errors(
    home: HomeReader, name: str, file: str, files: FileSystem, report: HomeReport
) -> Iterator[str]:
    part: str | None = file
    try:
        while part is not None:
            version = read_table_file(files, home.folder / TABLES / part)
            version.rows.validate(full=True)
            part = version.parent
    except (FileNotFoundError, TableDamaged, pa.ArrowException) as problem:
        home.poll()
        if home.tables.get(name) == file:
            report.damage.tables.append(name)
            missing = isinstance(problem, FileNotFoundError)
            yield f"table {name}: file {part} {'is missing' if missing else f'is damaged: {problem}'}"


def _checkpoint_files(task: dict[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield pairs of a checkpoint field of a task and an entry [path, checksum, bytes] of a file."""
    for name, value in task.items():
        if name.startswith(CHECKPOINT_FIELD):
            for entry in _entries(value):
                yield name, entry


def _entries(value: object) -> Iterator[list[Any]]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from _entries(inner)
    elif isinstance(value, list) and value:
        if isinstance(value[0], str) and isinstance(value[-1], int):
            yield value
        else:
            for inner in value:
                yield from _entries(inner)


# Repair of a home directory: the parts that cannot be read are dropped.
#
# The repair commits one journal record. The record drops damaged extents, and selects the newest undamaged
# checkpoint of each task. Files are not changed, and all losses are reported.


_OF_STATE = ("due", "latest", "heavy", *SINCE_CHECKPOINT, "resumable", BEFORE)


def repair_home(folder: Path, progress: Progress = lambda _: None) -> list[str]:
    """Drop damaged parts of a home directory; return messages about the losses.

    The list is empty if the home directory is undamaged. Raise JournalDamaged if a record in the journal
    cannot be read, but later records can.
    """
    require_home(folder)
    home = Home(folder, durability="machine")
    done: list[str] = []

    home.lock()
    try:
        end = read_end(folder / JOURNAL, LOCAL)
        home.open(progress, without_lost=True)
        missing = missing_commits(folder, home.epoch, 0, end)
        if missing is not None:
            done.append(f"the commits of epochs {home.epoch + 1} and later are lost")
        report = check_home(folder, progress=progress)
        done += report.errors
        change = Change(tables=dict.fromkeys(report.damage.tables))
        change.lost = {
            log: [(extent.segment, extent.offset) for extent in extents]
            for log, extents in report.damage.extents.items()
        }
        done += (
            f"table {name} has no rows until they are given or read again" for name in report.damage.tables
        )
        for name, damaged in report.damage.checkpoints.items():
            done += _with_whole_checkpoint(name, home, damaged, change)
        if done:
            _resume(home.tasks, change)
        home.commit(change)
    finally:
        home.close()
    return done


def _with_whole_checkpoint(name: str, home: Home, damaged: set[str], change: Change) -> Iterator[str]:
    """Restore a task from an undamaged checkpoint, or restart it without state."""
    task, fields = home.tasks[name], change.tasks.setdefault(name, {})
    before = task.get(BEFORE)
    if CHECKPOINT not in damaged:
        fields[BEFORE] = None
        yield f"task {name} loses the checkpoint before its last one, and nothing else"
    elif before is not None and BEFORE not in damaged and _can_replay(home, before):
        fields |= fallback_fields(before)
        yield f"task {name} is restored from the checkpoint before its last one, and loses nothing"
    else:
        outputs = task.get("outputs", [])
        why = "its state was damaged and could not be restored"
        fields |= dict.fromkeys(_OF_STATE)
        fields["failed"] = dict.fromkeys(outputs, why) or None
        fields[CHECKPOINT] = {
            "cursors": task.get("cursors", {}),
            "input_watermarks": task.get("input_watermarks", {}),
            "files": [],
        }
        yield f"task {name} has lost its state: {', '.join(outputs)} begin anew"


def _can_replay(home: Home, checkpoint: Mapping[str, Any]) -> bool:
    return all(log in home.logs and home.logs[log].covers(at) for log, at in checkpoint["cursors"].items())


def _resume(tasks: Mapping[str, dict[str, Any]], change: Change) -> None:
    """Resume the queries of each task whose queries all failed together; damage may be the cause."""
    for name, task in tasks.items():
        stopped = task.get("resumable", ())
        if stopped and "failed" not in change.tasks.get(name, {}):
            left = {log: why for log, why in task.get("failed", {}).items() if log not in stopped}
            change.tasks.setdefault(name, {}).update(failed=left or None, resumable=None)
            change.lives |= {log: {"tries": None} for log in stopped}

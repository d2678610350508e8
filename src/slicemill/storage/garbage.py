"""Garbage collection: remove files that no journal record references any more.

Files that were never referenced are moved to the trash instead. A segment is removed when all its extents are
freed and no writer appends to it any more: its writer has ended, or has committed rows in a later segment of
the same log.

A state file is removed when a committed checkpoint does not reference it and it is older than the kept
checkpoints, because a slice that left the state never returns. So files of uncommitted checkpoints are
removed after the next committed one.

All functions may be interrupted at any step and called again.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.storage.checkpoints import HEAD_SUFFIX
from slicemill.storage.files import FileSystem, exists
from slicemill.storage.home_state import CHECKPOINTS, LOGS, TABLES, HomeState, checkpoint_files
from slicemill.storage.log import Log
from slicemill.storage.segments import parse_segment
from slicemill.storage.table_files import TableDamaged, files_of_versions
from slicemill.storage.trash import Trash, remove_tree

# A file written this long before a commit cannot belong to a later checkpoint. The margin covers a checkpoint
# that is being written while another one is committed, and clock differences between hosts.
_CHECKPOINT_GRACE_US = 60_000_000


def remove_garbage(state: HomeState, files: FileSystem, writers: frozenset[str]) -> int:
    """Remove unreferenced files and return their number; files in use stay listed."""
    removed = _remove_folders(state, files)
    logs = {log.folder: log for log in state.logs.values()}
    for folder, segments in list(state.garbage.segments.items()):
        log = logs.get(folder)
        for segment in sorted(segments):
            if log is not None and log.is_used(segment):
                segments.discard(segment)
            elif log is None or _is_finished(log, segment, writers):
                files.remove(folder / segment)
                segments.discard(segment)
                removed += 1
        if not segments:
            del state.garbage.segments[folder]
    units = {state.checkpoint_folder(name): unit for name, unit in state.units.items()}
    for folder, committed_us in list(state.garbage.checkpoints.items()):
        named = checkpoint_files(units.get(folder, {}))
        removed += _remove_states(files, folder, named, committed_us)
        del state.garbage.checkpoints[folder]
    if state.garbage.tables:
        # A version may be in force again, or a version in force may build on it.
        used = _used_tables(state, files)
        for name in state.garbage.tables - used:
            files.remove(state.folder / TABLES / name)
            removed += 1
        state.garbage.tables &= used
    return removed


def remove_orphans(state: HomeState, files: FileSystem, writers: frozenset[str], trash: Trash) -> int:
    """Move files that were never referenced to the trash; return their number.

    An empty `writers` means that no process writes to the home.
    """
    removed = remove_garbage(state, files, writers)
    logs = {log.folder: log for log in state.logs.values()}
    for folder in _folders(files, state.folder / LOGS):
        log = logs.get(folder)
        if log is not None:
            removed += _take_orphan_segments(log, files, writers, trash)
        elif not writers:
            removed += trash.take_folder(folder)
    if not writers:
        units = {state.checkpoint_folder(name): unit for name, unit in state.units.items()}
        for folder in _folders(files, state.folder / CHECKPOINTS):
            if folder in units:
                named = checkpoint_files(units[folder])
                removed += sum(trash.take(folder / name) for name in files.names(folder) if name not in named)
            else:
                removed += trash.take_folder(folder)
        used, tables = _used_tables(state, files), state.folder / TABLES
        removed += sum(trash.take(tables / name) for name in files.names(tables) if name not in used)
    return removed


def _used_tables(state: HomeState, files: FileSystem) -> set[str]:
    """Return the files of table versions.

    Return all files if a damaged one hides its parent.
    """
    try:
        return files_of_versions(files, state.folder / TABLES, state.tables.values())
    except TableDamaged:
        return set(files.names(state.folder / TABLES)) | state.garbage.tables


def _remove_states(files: FileSystem, folder: Path, named: set[str], before_us: int) -> int:
    """Remove unreferenced state files that were written before a time."""
    # Compare file times with each other if possible: the mill's clock may be ahead of the file system's.
    heads = [name for name in named if name.endswith(HEAD_SUFFIX) and exists(files, folder / name)]
    written = [files.stat(folder / name).modified_us for name in heads]
    before_us = min(written, default=before_us) - _CHECKPOINT_GRACE_US
    removed = 0
    for name in files.names(folder):
        if name not in named and files.stat(folder / name).modified_us < before_us:
            files.remove(folder / name)
            removed += 1
    return removed


def _remove_folders(state: HomeState, files: FileSystem) -> int:
    used = {log.folder for log in state.logs.values()}
    used.update(state.checkpoint_folder(name) for name in state.units)
    removed = 0
    for folder in sorted(state.garbage.folders - used):
        removed += remove_tree(files, folder)
        state.garbage.segments.pop(folder, None)
        state.garbage.checkpoints.pop(folder, None)
    state.garbage.folders.clear()
    return removed


def _take_orphan_segments(log: Log, files: FileSystem, writers: frozenset[str], trash: Trash) -> int:
    return sum(
        trash.take(log.folder / name)
        for name in files.names(log.folder)
        if not log.is_used(name) and _is_finished(log, name, writers)
    )


def _is_finished(log: Log, segment: str, writers: frozenset[str]) -> bool:
    """Return True if no writer will append to a segment any more."""
    parsed = parse_segment(segment)
    return parsed is None or parsed[0] not in writers or log.is_left_behind(segment)


def _folders(files: FileSystem, parent: Path) -> list[Path]:
    return [parent / name for name in sorted(files.names(parent))]

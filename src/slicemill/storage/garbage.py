"""Garbage collection: removes files that no journal record names any more, or ever did.

A segment goes when all its extents are freed and nobody appends to it any more: its writer is gone, or has
committed rows in a later segment of the same log.

A state file goes when a checkpoint is committed that does not name it, and it is older than that: a slice
that was not in the state then will not be in it later. So what checkpoints leave that were not committed goes
with the next that is.

All of it may stop at any step and be called again.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.storage.files import FileSystem
from slicemill.storage.home_state import CHECKPOINTS, LOGS, TABLES, HomeState, checkpoint_files
from slicemill.storage.log import Log
from slicemill.storage.segments import parse_segment
from slicemill.storage.table_files import files_of_versions

# How long before a commit a file was written that cannot belong to a checkpoint after it. It covers a
# checkpoint that is being written while another one is committed, and the difference between the clocks of
# hosts.
_CHECKPOINT_GRACE_US = 60_000_000


def remove_garbage(state: HomeState, files: FileSystem, writers: frozenset[str]) -> int:
    """Remove what records have let go, and return how many files; what must wait stays in the list."""
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
        removed += _remove_states(files, folder, named, committed_us - _CHECKPOINT_GRACE_US)
        del state.garbage.checkpoints[folder]
    if state.garbage.tables:
        # A version may have come back since, or others may be told by what differs from it.
        used = files_of_versions(files, state.folder / TABLES, state.tables.values())
        for name in state.garbage.tables - used:
            files.remove(state.folder / TABLES / name)
            removed += 1
        state.garbage.tables &= used
    return removed


def remove_orphans(state: HomeState, files: FileSystem, writers: frozenset[str]) -> int:
    """Remove what no record names, and return how many files; without `writers` nobody is at work."""
    removed = remove_garbage(state, files, writers)
    logs = {log.folder: log for log in state.logs.values()}
    for folder in _folders(files, state.folder / LOGS):
        log = logs.get(folder)
        if log is not None:
            removed += _remove_orphan_segments(log, files, writers)
        elif not writers:
            removed += remove_tree(files, folder)
    if not writers:
        units = {state.checkpoint_folder(name): unit for name, unit in state.units.items()}
        for folder in _folders(files, state.folder / CHECKPOINTS):
            removed += _remove_states(files, folder, checkpoint_files(units.get(folder, {})), None)
            if folder not in units:
                files.remove_folder(folder)
        used = files_of_versions(files, state.folder / TABLES, state.tables.values())
        removed += _remove_states(files, state.folder / TABLES, used, None)
    return removed


def _remove_states(files: FileSystem, folder: Path, named: set[str], before_us: int | None) -> int:
    """Remove state files that are not named, and were written before a time if one is given."""
    removed = 0
    for name in files.names(folder):
        if name in named or (before_us is not None and files.stat(folder / name).modified_us >= before_us):
            continue
        files.remove(folder / name)
        removed += 1
    return removed


def remove_tree(files: FileSystem, folder: Path) -> int:
    """Remove a folder of files; how many there were."""
    names = files.names(folder)
    for name in names:
        files.remove(folder / name)
    files.remove_folder(folder)
    return len(names)


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


def _remove_orphan_segments(log: Log, files: FileSystem, writers: frozenset[str]) -> int:
    removed = 0
    for name in files.names(log.folder):
        if not log.is_used(name) and _is_finished(log, name, writers):
            files.remove(log.folder / name)
            removed += 1
    return removed


def _is_finished(log: Log, segment: str, writers: frozenset[str]) -> bool:
    """Will nobody append to a segment any more?"""
    parsed = parse_segment(segment)
    return parsed is None or parsed[0] not in writers or log.is_left_behind(segment)


def _folders(files: FileSystem, parent: Path) -> list[Path]:
    return [parent / name for name in sorted(files.names(parent))]

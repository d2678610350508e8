"""Garbage collection and retention: remove files that the journal no longer references.

Files that were never referenced are moved to the trash instead. A segment is an append-only file of rows, and
an extent is a range of its bytes. A segment is removed when all its extents are freed and its writer no
longer appends to the segment. The writer has then ended, or has committed rows in a later segment of the same
log.

A *slice* is an immutable table of operator state with a file of its own. A state file is removed when no
retained checkpoint references the file and the file is older than these checkpoints. A slice that was dropped
from the state is never added again. So files of uncommitted checkpoints are removed after the next committed
checkpoint.

All functions may be interrupted at any step and called again.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slicemill.storage.checkpoints import HEAD_SUFFIX
from slicemill.storage.filesystem import FileSystem, ensure_folder, exists, is_full
from slicemill.storage.home_state import CHECKPOINTS, LOGS, TABLES, HomeState, checkpoint_files
from slicemill.storage.log import Log
from slicemill.storage.segments import parse_segment
from slicemill.storage.table_files import TableDamaged, files_of_versions

# A state file that is older than a commit by this many µs cannot belong to a later checkpoint.
# The margin covers checkpoints that are written during the commit, and clock differences between hosts.
_CHECKPOINT_GRACE_US = 60_000_000


def remove_garbage(state: HomeState, files: FileSystem, writers: frozenset[str]) -> int:
    """Remove files that the journal no longer references, and return their number.

    Files that may still be in use stay in `state.garbage`.
    """
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
    tasks = {state.checkpoint_folder(name): task for name, task in state.tasks.items()}
    for folder, committed_us in list(state.garbage.checkpoints.items()):
        named = checkpoint_files(tasks.get(folder, {}))
        removed += _remove_states(files, folder, named, committed_us)
        del state.garbage.checkpoints[folder]
    if state.garbage.tables:
        # A replaced table version may be current again, or a current version may build on its file.
        used = _tables_in_use(state, files)
        for name in state.garbage.tables - used:
            files.remove(state.folder / TABLES / name)
            removed += 1
        state.garbage.tables &= used
    return removed


def remove_orphans(state: HomeState, files: FileSystem, writers: frozenset[str], trash: Trash) -> int:
    """Move files that the journal never referenced to the trash; return their number.

    An empty `writers` means that no process writes to the home directory.
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
        tasks = {state.checkpoint_folder(name): task for name, task in state.tasks.items()}
        for folder in _folders(files, state.folder / CHECKPOINTS):
            if folder in tasks:
                named = checkpoint_files(tasks[folder])
                removed += sum(trash.take(folder / name) for name in files.names(folder) if name not in named)
            else:
                removed += trash.take_folder(folder)
        used, tables = _tables_in_use(state, files), state.folder / TABLES
        removed += sum(trash.take(tables / name) for name in files.names(tables) if name not in used)
    return removed


def _tables_in_use(state: HomeState, files: FileSystem) -> set[str]:
    """Return the names of the files that the current versions of all tables need.

    If a file is damaged, the earlier file on which it builds is unknown. Then all table files are returned.
    """
    try:
        return files_of_versions(files, state.folder / TABLES, state.tables.values())
    except TableDamaged:
        return set(files.names(state.folder / TABLES)) | state.garbage.tables


def _remove_states(files: FileSystem, folder: Path, named: set[str], before_us: int) -> int:
    """Remove unreferenced checkpoint files of one task that were written before a time."""
    # File times are compared if possible, because the clocks of engine and file system may differ.
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
    used.update(state.checkpoint_folder(name) for name in state.tasks)
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
    return parsed is None or parsed[0] not in writers or log.is_superseded(segment)


def _folders(files: FileSystem, parent: Path) -> list[Path]:
    return [parent / name for name in sorted(files.names(parent))]


# Trash of a home directory: unreferenced files, which are deleted after a day.
#
#     trash/1700000000000000/logs/bid/w3.2-0.arrows     moved there at that time (µs)
#
# A crashed writer leaves unreferenced files, which are useless. But a damaged journal may not reference files
# that are needed, so opening a home directory only moves files. `mv trash/<time>/* .` in the home directory
# restores these files. The folder may be removed at any time to free space.


TRASH = "trash"
KEPT_US = 86_400_000_000
_NESTED = (LOGS, CHECKPOINTS)  # folders with a subfolder for each log or task


class Trash:
    """Trash of a home directory. Newly moved files get into a subfolder with the name `now_us`."""

    __slots__ = ("_files", "_home", "_now_us")

    def __init__(self, home: Path, files: FileSystem, now_us: int) -> None:
        self._home = home
        self._files = files
        self._now_us = now_us

    def take(self, path: Path) -> bool:
        """Move a file to the trash; return False if the file does not exist.

        On a full disk, or across file systems, the file stays where it is.
        """
        target = self._home / TRASH / str(self._now_us) / path.relative_to(self._home)
        try:
            ensure_folder(self._files, target.parent)
            self._files.replace(path, target)
        except OSError as problem:
            if is_full(problem) or problem.errno in (errno.EXDEV, errno.ENOENT):
                return False
            raise
        return True

    def take_folder(self, folder: Path) -> int:
        """Move all files of a folder to the trash; return their number."""
        taken = sum(self.take(folder / name) for name in self._files.names(folder))
        self._files.remove_folder(folder)
        return taken

    def empty(self) -> None:
        """Delete files that have been in the trash for at least a day."""
        for name in self._files.names(self._home / TRASH):
            if name.isdecimal() and int(name) <= self._now_us - KEPT_US:
                batch = self._home / TRASH / name
                for kind in self._files.names(batch):
                    if kind in _NESTED:
                        for inner in self._files.names(batch / kind):
                            remove_tree(self._files, batch / kind / inner)
                    remove_tree(self._files, batch / kind)
                self._files.remove_folder(batch)


def remove_tree(files: FileSystem, folder: Path) -> int:
    """Remove a folder and its files; return the number of files."""
    names = files.names(folder)
    for name in names:
        files.remove(folder / name)
    files.remove_folder(folder)
    return len(names)


# Retention: search for consumed log epochs whose retention time has passed.
#
# An epoch is the rows that one commit appended to a log. A consumer's cursor in a log is the number of the
# last epoch that the consumer has read (-1 for none). Many consumers share one stored copy of the rows.
# Epochs are freed in order, so one number per log is enough.


@dataclass(frozen=True, slots=True)
class Retention:
    """Minimum age and number of log epochs to retain after all consumers have read them."""

    age_us: int = 0  # minimum time since the arrival of a freed epoch
    epochs: int = 0  # number of newest epochs to retain


def slowest(consumers: Iterable[Mapping[str, int]], log: str) -> int | None:
    """Return the smallest position (last epoch read) of the consumers of a log; None if it has none."""
    return min((cursors[log] for cursors in consumers if log in cursors), default=None)


def epochs_to_free(
    logs: Iterable[Log], consumers: Sequence[Mapping[str, int]], kept_us: Mapping[str, int], now_us: int
) -> dict[str, int]:
    """Map each log with epochs to delete to the first epoch to retain, for `Change.freed`.

    The result omits logs of which no epoch can be deleted.
    """
    freed = {}
    for log in logs:
        retention = Retention(age_us=kept_us.get(log.name, 0))
        first = keep_from(log, slowest(consumers, log.name), retention, now_us)
        if first > log.first:
            freed[log.name] = first
    return freed


def keep_from(log: Log, slowest_cursor: int | None, retention: Retention, now_us: int) -> int:
    """Return the first epoch of a log to retain, for `Change.freed`.

    The result is at most `log.first` if no epoch can be deleted.
    """
    read = log.head if slowest_cursor is None else min(slowest_cursor, log.head)
    upto = min(read, log.newest(retention.epochs) - 1)
    return log.first_arrived_after(now_us - retention.age_us, upto)

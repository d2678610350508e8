"""Home directory: the data directory of the engine, with its logs, its state and all commits.

    FORMAT                  version number of the folder's layout
    lock                    locked by the process that writes; contains the process id
    journal/                records and snapshots      (slicemill.storage.journal)
    logs/<name>/            segments of rows           (slicemill.storage.segments)
    checkpoints/<task>/     state files                (slicemill.storage.checkpoints)
    tables/                 rows of tables, by version     (slicemill.storage.table_files)
    trash/                  unreferenced files, deleted after a day     (slicemill.storage.garbage)
    sources/ sinks/ readers/   files of sources, sinks and external readers

Workers append rows to segments and write checkpoints, which readers cannot see yet. `commit` appends one
journal record that names all new rows and checkpoints, and so makes them visible atomically. `free` later
removes files that are no longer referenced. `sweep` moves files that were never referenced, because their
writer crashed, to the trash.

With durability "process" a commit survives the end of any process, at any instruction. With durability
"machine" writers sync their segments, and the record is synced to disk before `commit` returns. So the
commit also survives a loss of power.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import socket
import stat
import threading
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa

from slicemill.storage.changes import Change, encode_record
from slicemill.storage.filesystem import (
    LOCAL,
    PRIVATE_FOLDER,
    FileSystem,
    ensure_folder,
    folder_name,
    now_us,
    open_private,
    raise_storage_full,
    remove_temporary,
    write_atomically,
)
from slicemill.storage.garbage import TRASH, Trash, remove_garbage, remove_orphans, remove_tree
from slicemill.storage.home_state import (
    CHECKPOINTS,
    LOGS,
    TABLES,
    HomeError,
    HomeState,
    encode_snapshot,
    merge_fields,
)
from slicemill.storage.journal import (
    JOURNAL,
    JournalDamaged,
    JournalEndWriter,
    JournalWriter,
    Progress,
    load,
    missing_commits,
    read_end,
    records_path,
    write_snapshot,
)
from slicemill.storage.log import Log

Durability = Literal["process", "machine"]

_LOGGER = logging.getLogger(__name__)

# Bounds in bytes for the size of the journal records after which a snapshot of the journal is written.
# Within the bounds a snapshot is due when the records are as large as the last snapshot.
# The lower bound avoids many small snapshot files.
# The upper bound limits the time to replay records.
_SNAPSHOT_EVERY = (4 << 20, 32 << 20)
_BETWEEN_EMPTYING_US = 3_600_000_000


class Home:
    """Home directory (data directory of the engine) that one process writes. All methods are thread-safe."""

    def __init__(
        self,
        folder: Path,
        *,
        durability: Durability = "process",
        files: FileSystem = LOCAL,
        clock: Callable[[], int] = now_us,
        snapshot_every: tuple[int, int] = _SNAPSHOT_EVERY,
        background: bool = True,
    ) -> None:
        self.folder = folder
        self._durable = durability == "machine"
        self._files = files
        self._clock = clock
        self._least_bytes, self._most_bytes = snapshot_every
        self._background = background
        self._lock = threading.RLock()
        self._owner = HomeLock(folder)
        self._state = HomeState(folder, files)
        self._journal: JournalWriter | None = None
        self._end: JournalEndWriter | None = None
        self._emptied_us = 0  # time of the last deletion of expired trash
        self._folders: set[str] = set()  # folder names of all logs since the home directory was opened
        self._announced_streams: Mapping[str, dict[str, Any]] = {}
        self._snapshot_bytes = 0
        self._snapshot: threading.Thread | None = None

    @property
    def epoch(self) -> int:
        """Return the number of the last commit, or -1 before the first commit."""
        return self._state.epoch

    @property
    def committed_us(self) -> int:
        """Return the time of the last commit, or 0 before the first commit."""
        return self._state.committed_us

    @property
    def durable(self) -> bool:
        """Return True if commits survive a loss of power."""
        return self._durable

    @property
    def logs(self) -> Mapping[str, Log]:
        """Return all logs, including logs that the next commit creates."""
        announced, logs = self._state.announced, self._state.logs
        return ChainMap(announced, logs) if announced else logs

    @property
    def tasks(self) -> Mapping[str, dict[str, Any]]:
        return self._state.tasks

    @property
    def streams(self) -> Mapping[str, dict[str, Any]]:
        """Return the journal fields of streams, including fields that the next commit sets."""
        streams = self._state.streams
        if not self._announced_streams:
            return streams
        changed = self._announced_streams.items()
        return {**streams, **{name: merge_fields(streams.get(name, {}), fields) for name, fields in changed}}

    @property
    def statements(self) -> list[dict[str, Any]]:
        return self._state.statements

    @property
    def tables(self) -> Mapping[str, str]:
        """Map each table to the file of its current rows in the folder `tables`."""
        return self._state.tables

    @property
    def alerts(self) -> Mapping[str, dict[str, Any]]:
        """Map each alert to its journal fields, such as firing alarms and undelivered messages."""
        return self._state.alerts

    @property
    def lives(self) -> Mapping[str, dict[str, Any]]:
        """Map each paused or retried query or stream to its journal fields about pauses and retries."""
        return self._state.lives

    def source_folder(self, stream: str) -> Path:
        """Return the folder in which the source of a stream stores its own data, such as spooled rows."""
        return self.folder / "sources" / folder_name(stream)

    def checkpoint_folder(self, task: str) -> Path:
        """Return the folder with the checkpoint files of a task."""
        return self._state.checkpoint_folder(task)

    def lock(self) -> None:
        """Lock the home directory for this process, or raise HomeLocked.

        The operating system releases the lock when the process ends. Locking is fast, so lock before any slow
        work.
        """
        check_format(self.folder, self._files)
        self._owner.take()

    def unlock(self) -> None:
        self._owner.release()

    def open(self, progress: Progress | None = None, *, without_lost: bool = False) -> None:
        """Lock and load the home directory; move unreferenced files to the trash.

        Raise JournalDamaged if commits are missing at the end of the journal, unless `without_lost` accepts
        the loss.
        """
        if self._files is LOCAL:
            self.lock()
        try:
            self._open(progress or _silent, without_lost)
        except BaseException:
            self.unlock()
            raise

    def _open(self, tell: Progress, without_lost: bool) -> None:
        with self._lock, raise_storage_full(self.folder):
            check_format(self.folder, self._files)
            make_home(self.folder, self._files, self._durable)
            if self._files is LOCAL:
                _warn_of_permissions(self.folder)
            loaded = load(self.folder, self._files, tell)
            end = read_end(self.folder / JOURNAL, self._files)
            missing = missing_commits(self.folder, loaded.state.epoch, loaded.torn, end)
            if missing is not None:
                if missing.is_binding and not without_lost:
                    raise JournalDamaged(missing.words)
                _LOGGER.warning("%s", missing.words)
                tell(f"journal: {missing.words}")
            write_format(self.folder, self._files, self._durable)
            self._state = loaded.state
            if loaded.torn:
                tell(f"journal: {loaded.torn} bytes of a commit that did not end are cut off")
            self._journal = JournalWriter(self.folder, loaded, self._files, self._durable)
            self._end = JournalEndWriter(self.folder / JOURNAL, self._files, self._durable)
            if missing is not None:
                self._end.note(self._state.epoch)
            trash = self._trash()
            for path in loaded.damaged:
                trash.take(path)  # a damaged snapshot must not count as one of the last two snapshots
            trash.empty()
            for folder in (self.folder, self.folder / JOURNAL):
                remove_temporary(self._files, folder)
            removed = self.sweep()
            self._folders.update(self._files.names(self.folder / LOGS))
            if removed:
                tell(f"{removed} files that no commit names are moved to {self.folder / TRASH} for a day")

    def commit(self, change: Change) -> int:
        """Commit a change atomically and return the number of the commit, its epoch.

        An empty change writes nothing. Rows of one writer must be committed in the order in which the writer
        appended the rows. After StorageFull nothing has changed, and a later commit can succeed.
        """
        with self._lock:
            if not change:
                return self._state.epoch
            journal = self._opened()
            self._state.check(change)
            folders = self._make_folders(change.created) if change.created else {}
            epoch = self._state.epoch + 1
            content = encode_record(epoch, self._clock(), change, folders)
            journal.append(epoch, content)
            if self._end is not None:
                self._end.note(epoch)
            self._folders.update(folders.values())
            # The state in memory is changed by the encoded record, so a replay gives the same state.
            self._state.apply(json.loads(content))
            if journal.end >= min(max(self._least_bytes, self._snapshot_bytes), self._most_bytes):
                self._take_snapshot(journal)
            return self._state.epoch

    def free(self, writers: Collection[str] = ()) -> int:
        """Remove files that the journal no longer references, and return their number.

        These are files of freed epochs, dropped logs and old checkpoints. Segments to which one of `writers`
        may still append are not removed.
        """
        with self._lock:
            if self._clock() >= self._emptied_us + _BETWEEN_EMPTYING_US:
                self._trash().empty()
            return remove_garbage(self._state, self._files, frozenset(writers))

    def _trash(self) -> Trash:
        self._emptied_us = self._clock()
        return Trash(self.folder, self._files, self._emptied_us)

    def sweep(self, writers: Collection[str] = ()) -> int:
        """Move segments that were never referenced to the trash; return their number.

        `writers` must name every writer with uncommitted rows, whose segments are not moved. If `writers` is
        empty, no process writes to the home directory, and unreferenced checkpoints are moved too.
        """
        with self._lock:
            return remove_orphans(self._state, self._files, frozenset(writers), self._trash())

    def close(self) -> None:
        """Finish a pending snapshot, and release the lock of the home directory."""
        if self._snapshot is not None:
            self._snapshot.join()
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            if self._end is not None:
                self._end.close()
                self._end = None
        self.unlock()

    @property
    def is_interrupted(self) -> bool:
        """Return True if a commit was written to the journal but not applied in memory.

        The home directory must then be opened again.
        """
        return self._journal is not None and self._journal.epoch != self._state.epoch

    def _opened(self) -> JournalWriter:
        if self._journal is None:
            raise HomeError(f"home {self.folder} is not open")
        if self.is_interrupted:
            raise HomeError(f"a commit to {self.folder} was interrupted; open the home again")
        return self._journal

    @contextlib.contextmanager
    def announcing(self) -> Iterator[None]:
        """At the end of the `with` block, withdraw announced logs and fields that are not committed."""
        with self._lock:
            logs, streams = set(self._state.announced), self._announced_streams
        try:
            yield
        finally:
            with self._lock:
                self._announced_streams = streams
                announced = self._state.announced
                self._state.announced = {name: log for name, log in announced.items() if name in logs}
                for name in announced.keys() - logs:
                    with contextlib.suppress(OSError):
                        remove_tree(self._files, announced[name].folder)

    def announce(
        self, created: Mapping[str, pa.Schema], streams: Mapping[str, dict[str, Any]] | None = None
    ) -> None:
        """Make new logs and stream fields visible to this process before the commit that creates them.

        The tasks of a statement are prepared with logs that the journal record of the statement creates. A
        crash before this record leaves no trace of the logs.
        """
        with self._lock:
            folders = self._make_folders(created) if created else {}
            self._folders.update(folders.values())
            logs = self.folder / LOGS
            new = {
                name: Log(name, logs / folders[name], schema, self._files) for name, schema in created.items()
            }
            self._state.announced = {**self._state.announced, **new}
            self._announced_streams = {**self._announced_streams, **(streams or {})}

    def _make_folders(self, created: Mapping[str, pa.Schema]) -> dict[str, str]:
        """Create a folder for each new log, and return the folder names by log.

        A folder name is never reused, because workers may have segments of a dropped log open.
        """
        logs = self.folder / LOGS
        folders: dict[str, str] = {}
        with raise_storage_full(self.folder):
            for name in created:
                if name in self._state.announced:
                    folders[name] = self._state.announced[name].folder.name
                    continue
                folder = folder_name(name)
                while folder in self._folders or folder in folders.values():
                    folder = f"{folder}~{self._state.epoch + 1}"
                ensure_folder(self._files, logs / folder)
                folders[name] = folder
            if self._durable:
                self._files.sync(logs)
        return folders

    def _take_snapshot(self, journal: JournalWriter) -> None:
        """Start a new journal file, and write a snapshot of the state before its first record."""
        if self._snapshot is not None and self._snapshot.is_alive():
            return
        base = self._state.epoch + 1
        try:
            journal.rotate(base)
        except OSError:
            return  # the current commit is valid, and the next commit retries the snapshot
        parts = encode_snapshot(self._state)
        self._snapshot_bytes = sum(len(part) for part in parts)

        def write() -> None:
            # If writing fails, opening the home directory reads the records since the previous snapshot.
            with contextlib.suppress(OSError):
                write_snapshot(self.folder, base, parts, self._files, self._durable)

        if self._background:
            self._snapshot = threading.Thread(target=write, name="snapshot", daemon=True)
            self._snapshot.start()
        else:
            write()


def _silent(_: str) -> None:
    pass


def _warn_of_permissions(folder: Path) -> None:
    """Warn if other users can read an existing home directory.

    New home directories are private.
    """
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & ~PRIVATE_FOLDER:
        _LOGGER.warning(
            "home %s has the rights %03o: others can look into it; chmod 700 %s keeps them out",
            folder,
            mode,
            folder,
        )


__all__ = ["CHECKPOINTS", "LOGS", "Durability", "Home", "HomeError"]


# FORMAT is a file with the version number of the layout of a home directory.


FORMAT = "FORMAT"
CURRENT = 6
# FORMAT 6 added checksums of extents and checkpoint files.
# A home directory of FORMAT 5 is read without conversion, and data without a checksum is not verified.
# FORMAT becomes 6 when an engine opens the directory.
READABLE = (5, CURRENT)

_PARTS = (JOURNAL, LOGS, CHECKPOINTS)


class FormatError(HomeError):
    """Error: this version of slicemill cannot read a home directory."""


def read_format(folder: Path, files: FileSystem = LOCAL) -> int | None:
    """Return the layout version of a home directory, from its file FORMAT.

    Return None if the folder is no home directory, and 0 for an early version without FORMAT.
    """
    try:
        text = files.read(folder / FORMAT).decode(errors="replace").strip()
    except FileNotFoundError:
        return 0 if _has_content(folder, files) else None
    if not text.isdecimal():
        raise FormatError(f"{folder / FORMAT} says {text[:40]!r}, not a number; restore it from a copy")
    return int(text)


def _has_content(folder: Path, files: FileSystem) -> bool:
    """Return True if a folder without the file FORMAT has data of an early version."""
    if any(files.names(folder / part) for part in (LOGS, CHECKPOINTS, TABLES)):
        return True
    journal = folder / JOURNAL
    return any(files.stat(journal / name).bytes for name in files.names(journal))


def check_format(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise, with advice, if this version of slicemill cannot read a home directory."""
    found = read_format(folder, files)
    if found is None or found in READABLE:
        return
    if found > CURRENT:
        raise FormatError(
            f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: a newer one made it. "
            "Install that one; 'slicemill home upgrade' brings a home forward, never back"
        )
    raise FormatError(
        f"home {folder} has FORMAT {found}, and this slicemill reads {CURRENT}: run "
        f"'slicemill home upgrade {folder}' first, or restore the file FORMAT from a copy if it was damaged"
    )


def require_home(folder: Path, files: FileSystem = LOCAL) -> None:
    """Raise if a folder is no home directory."""
    if read_format(folder, files) is None:
        raise FormatError(f"there is no home in {folder}; a mill makes one when it runs with --home")


def make_home(folder: Path, files: FileSystem = LOCAL, durable: bool = False) -> None:
    """Create the folders, the journal and finally the FORMAT file of a home directory.

    Existing files are not changed. Because FORMAT is created last, a home directory with FORMAT and without a
    journal has lost its journal.
    """
    for part in _PARTS:
        ensure_folder(files, folder / part, durable)
    if read_format(folder, files) is None:
        files.append(records_path(folder, 0)).close()
        if durable:
            files.sync(folder / JOURNAL)
        write_format(folder, files, durable)


def write_format(folder: Path, files: FileSystem = LOCAL, durable: bool = False) -> None:
    """Write the current version number of the directory layout to the file FORMAT."""
    if read_format(folder, files) != CURRENT:
        write_atomically(files, folder / FORMAT, f"{CURRENT}\n".encode(), durable)


# Lock of a home directory: only one process writes to the directory at a time.


LOCK = "lock"


class HomeLocked(HomeError):
    """Error: another process has locked the home directory."""


class HomeLock:
    """File lock (`flock`) on a home directory; the lock file has the process id of its holder.

    The operating system releases the lock when the process ends.
    """

    __slots__ = ("_file", "_folder")

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[str] | None = None

    def take(self, advice: str = "stop it, or give this one a home of its own") -> None:
        """Acquire the lock, or raise HomeLocked if another process holds it."""
        if self._file is not None:
            return
        try:
            self._folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
            # Opening must not truncate the lock file, which may name the current holder.
            file = os.fdopen(open_private(self._folder / LOCK), "a+", encoding="utf-8")
        except OSError as problem:
            raise HomeError(
                f"{self._folder} cannot be a home: {problem.strerror}; name a folder that can be written"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = _describe_holder(file.read())
            file.close()
            raise HomeLocked(f"another mill{holder} runs in {self._folder}; {advice}") from None
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        json.dump({"pid": os.getpid(), "host": socket.gethostname(), "since": since}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _describe_holder(text: str) -> str:
    """Return the process that holds a lock as text, or "" if the lock file does not name it."""
    try:
        holder = json.loads(text)
        return f" (process {holder['pid']} on {holder['host']}, since {holder['since']})"
    except (ValueError, KeyError, TypeError):
        return ""

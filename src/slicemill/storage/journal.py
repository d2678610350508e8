"""Journal of a home directory: all commits in order, and snapshots of the resulting state.

    journal/000000000000.records      one line per commit (slicemill.storage.changes), from epoch 0 on
    journal/000000041200.snapshot     state before epoch 41200
    journal/000000041200.records      one line per commit, from epoch 41200 on
    journal/end                       number of the last commit (`JournalEnd`)

A commit is one append to the journal, and its number is called epoch. When the records since the last
snapshot are large, the writer starts a new file of records and writes a snapshot of the state before it. A
crash in between leaves two files of records, which are read one after the other. The last two snapshots and
the records since the older snapshot are retained. So the older snapshot can replace a damaged newer snapshot,
and a reader that lags a little still finds the next records.

When the home directory is opened, the newest snapshot and the records after it are read. An incomplete last
record, left by a crash, is truncated. A damaged or missing record before other records is an error, because
later records build on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from slicemill.storage.changes import frame, split_lines, unframe
from slicemill.storage.filesystem import AppendFile, FileSystem, full_message, is_full, write_atomically
from slicemill.storage.home_state import HomeError, HomeState, SnapshotDamaged, decode_snapshot

JOURNAL = "journal"
RECORDS = ".records"
SNAPSHOT = ".snapshot"

Progress = Callable[[str], None]

_TOLD_EVERY = 50_000


class JournalDamaged(HomeError):
    """Error: records in the middle of the journal are damaged or missing."""


class JournalPosition(NamedTuple):
    """Position in the journal: first epoch of a journal file, and offset in the file."""

    base: int
    offset: int


class LoadedJournal(NamedTuple):
    state: HomeState
    position: JournalPosition
    torn: int  # number of bytes after the last complete record
    damaged: list[Path]  # files of snapshots that could not be read


def records_path(home: Path, base: int) -> Path:
    return home / JOURNAL / f"{base:012d}{RECORDS}"


def snapshot_path(home: Path, base: int) -> Path:
    return home / JOURNAL / f"{base:012d}{SNAPSHOT}"


def bases(names: Iterable[str], suffix: str) -> list[int]:
    """Return the sorted first epochs of all journal files whose names have a given suffix."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def load(home: Path, files: FileSystem, progress: Progress) -> LoadedJournal:
    """Read the journal of a home directory.

    Raise FileNotFoundError if a running engine removed a file meanwhile.
    """
    # The files are listed before they are read, because all records before a listed file are complete.
    names = files.names(home / JOURNAL)
    listed = bases(names, RECORDS)
    if not listed:
        raise JournalDamaged(
            f"the journal of {home} is missing: there are no records in {home / JOURNAL}. Nothing was "
            "changed; restore the folder from a copy, or give the mill another home"
        )
    damaged: list[Path] = []
    state = _newest_snapshot(home, files, bases(names, SNAPSHOT), progress, damaged)
    position, torn = JournalPosition(state.epoch + 1, 0), 0
    while position.base in listed:
        data = files.read(records_path(home, position.base))
        offset = apply_lines(state, data, records_path(home, position.base), 0, progress)
        position, torn = JournalPosition(position.base, offset), len(data) - offset
        if state.epoch + 1 == position.base or state.epoch + 1 not in listed:
            break
        position = JournalPosition(state.epoch + 1, 0)
    missing = [base for base in listed if base > state.epoch + 1]
    if missing:
        raise JournalDamaged(
            f"the journal of {home} has no record of epoch {state.epoch + 1}, but later ones from "
            f"{missing[0]} on; restore it from a copy"
        )
    return LoadedJournal(state, position, torn, damaged)


class MissingCommits(NamedTuple):
    """Message about acknowledged commits that are missing in the journal."""

    words: str
    is_binding: bool  # True if a loss of power cannot explain the missing commits


def missing_commits(home: Path, last: int, torn: int, end: JournalEnd | None) -> MissingCommits | None:
    """Compare the last record of a journal with the last commit in the file `end`.

    Return None if no commit is missing.
    """
    if end is None or end.epoch <= last:
        return None
    lost = f"epoch {end.epoch}" if end.epoch == last + 1 else f"epochs {last + 1} to {end.epoch}"
    unread = f" ({torn} bytes behind it cannot be read)" if torn else ""
    words = f"the journal of {home} ends with epoch {last}{unread}, but {lost} had been committed: "
    if end.is_binding:
        words += (
            "it was damaged or cut off. Nothing was changed; restore it from a copy, or run "
            f"'slicemill home repair {home}' to go on as of epoch {last}"
        )
    else:
        words += "the machine was started again since, and lost what was not on disk"
    return MissingCommits(words, end.is_binding)


def apply_lines(state: HomeState, data: bytes, path: Path, start: int, progress: Progress) -> int:
    """Apply all complete journal records in `data`; return the file offset after the last one.

    `data` was read from a journal file at offset `start`.
    """
    lines = split_lines(data)
    if lines.damaged:
        raise JournalDamaged(
            f"{path} is damaged at byte {start + lines.end}: the record of epoch "
            f"{state.epoch + len(lines.contents) + 1} cannot be read, but later ones can; "
            "restore it from a copy"
        )
    for count, content in enumerate(lines.contents):
        record = json.loads(content)
        if record["e"] != state.epoch + 1:
            raise JournalDamaged(
                f"{path} is damaged: epoch {record['e']} follows {state.epoch}; restore it from a copy"
            )
        try:
            state.apply(record)
        except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as problem:
            raise JournalDamaged(
                f"{path} does not fit the rest of the home: the record of epoch {record['e']} is whole, but "
                f"cannot be applied ({type(problem).__name__}: {problem}). Nothing was changed; restore the "
                "home from a copy"
            ) from problem
        if count % _TOLD_EVERY == _TOLD_EVERY - 1:
            progress(f"journal: {count + 1:,} of {len(lines.contents):,} records")
    return start + lines.end


def read_snapshot(home: Path, files: FileSystem, path: Path) -> HomeState:
    """Read the state in a snapshot of the journal, or raise SnapshotDamaged."""
    try:
        return decode_snapshot(files.read(path), home, files)
    except SnapshotDamaged:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, pa.ArrowException) as problem:
        raise SnapshotDamaged(f"it cannot be applied: {type(problem).__name__}: {problem}") from problem


def _newest_snapshot(
    home: Path, files: FileSystem, found: Sequence[int], progress: Progress, damaged: list[Path]
) -> HomeState:
    for base in reversed(found):
        path = snapshot_path(home, base)
        try:
            state = read_snapshot(home, files, path)
        except SnapshotDamaged as problem:
            progress(f"journal: {path.name} is not whole ({problem}); the one before it is taken")
            damaged.append(path)
            continue
        size = files.stat(path).bytes
        progress(f"journal: snapshot of epoch {state.epoch:,}, {size:,} bytes, {len(state.logs)} logs")
        return state
    return HomeState(home, files)


class JournalWriter:
    """Writer of journal records.

    The bytes of a failed append are truncated at once. If that fails, they are truncated before the next
    append.
    """

    __slots__ = ("_broken", "_dirty", "_durable", "_file", "_files", "_home", "base", "end", "epoch")

    def __init__(self, home: Path, loaded: LoadedJournal, files: FileSystem, durable: bool) -> None:
        self.base, self.end = loaded.position
        self.epoch = loaded.state.epoch
        self._home = home
        self._files = files
        self._durable = durable
        self._broken = False
        # True if the next append must truncate the file after its last complete record.
        self._dirty = True
        self._file = files.append(records_path(home, self.base))
        if durable:
            files.sync(home / JOURNAL)

    def append(self, epoch: int, content: bytes) -> None:
        """Append a journal record. The record is committed if and only if this method returns."""
        if self._broken:
            raise HomeError(f"the journal of {self._home} could not be synced to disk; open the home again")
        line = frame(content)
        try:
            if self._dirty:
                self._file.cut(self.end)
            self._dirty = True
            self._file.write(line)
        except OSError as problem:
            self._cut()
            if is_full(problem):
                raise full_message(self._home) from problem
            raise HomeError(f"the journal of {self._home} cannot be written: {problem}") from problem
        if self._durable:
            self._sync(self._file.sync)
        self.epoch, self.end, self._dirty = epoch, self.end + len(line), False

    def rotate(self, base: int) -> None:
        """Start a new journal file, whose first record will have epoch `base`."""
        file = self._files.append(records_path(self._home, base))
        self._file.close()
        self._file, self.base, self.end, self._dirty = file, base, 0, True
        if self._durable:
            self._sync(lambda: self._files.sync(self._home / JOURNAL))

    def close(self) -> None:
        self._file.close()

    def _cut(self) -> None:
        try:
            self._file.cut(self.end)
        except OSError:
            return
        self._dirty = False

    def _sync(self, sync: Callable[[], None]) -> None:
        try:
            sync()
        except OSError as problem:
            # After a failed sync, the content of the disk is unknown, so a retry is useless.
            self._broken = True
            raise HomeError(f"the journal of {self._home} cannot be synced to disk: {problem}") from problem


def write_snapshot(
    home: Path, base: int, parts: Sequence[bytes | pa.Buffer], files: FileSystem, durable: bool
) -> None:
    """Write the snapshot of the state before epoch `base`; remove journal files that are not needed now."""
    write_atomically(files, snapshot_path(home, base), b"".join(bytes(part) for part in parts), durable)
    names = files.names(home / JOURNAL)
    kept = bases(names, SNAPSHOT)[-2:]
    oldest = kept[0] if len(kept) > 1 else 0
    for suffix in (SNAPSHOT, RECORDS):
        for old in bases(names, suffix):
            if old < oldest:
                files.remove(home / JOURNAL / f"{old:012d}{suffix}")


# The file `end` of the journal has the epoch (number) of the last commit.
#
#     journal/end      lines <crc32> {"e":17,"boot":"5f0a…"}, of which the last complete line counts
#
# If a journal loses complete records at its end, the remaining file is a valid older journal. The file `end`
# reveals the loss when the home directory is opened. A line is written after its record. So after a crash the
# last line may be missing, but no line names a commit that was not made.
#
# With durability "process" a loss of power may destroy records whose line survives. So the line has the
# boot id of the machine: after another boot, missing records are only reported and opening succeeds. With
# durability "machine" the record is on disk before the line is written, so the line counts after any boot.


END_FILE = "end"
_MOST_BYTES = 1 << 16
_BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Last commit according to the file `end` of the journal.

    `boot` is the boot id of the machine. It is empty if the record of the commit was synced to disk before
    the line was written.
    """

    epoch: int
    boot: str

    @property
    def is_binding(self) -> bool:
        """Return True if a loss of power cannot explain a missing record."""
        return not self.boot or self.boot == this_boot()


def this_boot() -> str:
    """Return the boot id of the machine, or "unknown" if the machine has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return "unknown"


def read_end(journal: Path, files: FileSystem) -> JournalEnd | None:
    """Return the last commit that the file `end` of a journal names, or None if it names none."""
    try:
        data = files.read(journal / END_FILE)
    except FileNotFoundError:
        return None
    for line in reversed(data.split(b"\n")):
        content = unframe(line + b"\n")
        if content is not None:
            fields = json.loads(content)
            return JournalEnd(fields["e"], fields["boot"])
    return None


class JournalEndWriter:
    """Writer of the file `end` of a journal.

    Errors of writing are ignored, because an older line remains correct.
    """

    __slots__ = ("_boot", "_bytes", "_file")

    def __init__(self, journal: Path, files: FileSystem, durable: bool) -> None:
        self._boot = b"" if durable else this_boot().encode()
        self._file: AppendFile = files.append(journal / END_FILE)
        self._bytes = _MOST_BYTES  # assumed size of an existing file, whose size is unknown

    def note(self, epoch: int) -> None:
        line = frame(b'{"e":%d,"boot":"%b"}' % (epoch, self._boot))
        try:
            self._file.write(line)
            self._bytes += len(line)
            if self._bytes > _MOST_BYTES:
                self._file.cut(0)
                self._file.write(line)
                self._bytes = len(line)
        except OSError:
            return

    def close(self) -> None:
        self._file.close()

"""Reader of files, which reads each new file of a folder once.

New Parquet, CSV and JSON files are read in the order of (modification time, name). A file is identified by
its name, so a file that is touched or rewritten later is not read again. A file must be complete when it
appears: move it into the folder, or let its name begin with `_` until it is complete. If a file that was read
changes, its stream reports a problem. The option `follow` reads growing files (`FollowingReader`).

An unreadable file becomes a bad row, and reading continues with the next file. If the file was modified in
the last second, it may be incomplete, so the read is retried first. An error of the system (a failing disk,
missing permissions) stops only this stream, until the file can be read. A source that names a single file
ends with that file. Folders and patterns never end.

An offset is `{"seen": position in the ledger, "names": files read since, "file": [name, position], "memory":
…, "sizes": sizes of the newest files}`. The *ledger* is a file with the names of files that were read.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.catalog.catalog import SourceSpec, Table
from slicemill.connectors.files.file_format import FileFormat, FilePiece
from slicemill.connectors.files.ledger import Ledger
from slicemill.connectors.files.listing import ListedFile, Listing, check_options, is_true, listing_of
from slicemill.connectors.files.text import FollowingReader, TextFiles
from slicemill.connectors.origin import LINES_IN_FILES, SourceOrigin, origin_of
from slicemill.errors import SlicemillError, format_count
from slicemill.ingest.formats.checked import (
    ERRORS,
    FILE_LOST,
    UnreadableFile,
    WantedColumns,
    concat_nonempty,
    unreadable,
)
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import CSV_LINES, JSON
from slicemill.ingest.formats.parquet import ParquetRows, check_columns
from slicemill.ingest.reader import SourceBatch, SourceReader

_FIRST_AGAIN_US, _MOST_AGAIN_US = 50_000, 200_000
# Polls for new files may take at most 1/n of the time.
_SHARE_OF_POLLS = 10
# Number of file names in an offset above which they are moved to the ledger, and maximum number of files per
# read.
_NAMES_IN_OFFSET = 64
_FILES_AT_ONCE = 1_000
# Age of a modification below which a file may still be growing.
_GROWING_NS = 1_000_000_000
# Number of newest files that are checked for later changes, and the interval of these checks.
_WATCHED, _CHECK_EVERY_S = 20, 1.0
# Number of files to check for declared columns. A column that is missing in all of them is an error.
_CHECKED_FILES = 3


def open_files(
    origin: SourceOrigin, wanted: WantedColumns, spool: Path, clock: Callable[[], int]
) -> SourceReader | None:
    """Return the reader of a stream's files, or None if the declaration needs Spark."""
    opened = open_format(origin, wanted)
    if opened is None:
        return None
    listing, form = opened
    if is_true(origin.options, "follow"):
        assert isinstance(form, TextFiles), "the options are checked"
        form.growing = True
        return FollowingReader(listing, form, clock)
    most = origin.option("maxFilesPerTrigger")
    if most is not None and not (most.isdecimal() and int(most)):
        raise SlicemillError(f"the option maxFilesPerTrigger is a number of files from 1 on, not {most!r}")
    return FilesReader(listing, form, Ledger(spool), clock, _FILES_AT_ONCE if most is None else int(most))


def open_format(origin: SourceOrigin, wanted: WantedColumns) -> tuple[Listing, FileFormat] | None:
    """Return the files and the format of a source, or None if it needs Spark."""
    path = origin.require_file()
    if not check_options(origin.format, origin.options) or path is None:
        return None
    if is_true(origin.options, "multiLine"):
        raise SlicemillError("a row is one line; multiLine files cannot be read")
    listing = listing_of(path.absolute(), origin.option("pathGlobFilter"))
    if not listing.exists():
        raise SlicemillError(f"there is no file or folder {path}")
    if listing.has_partitions():
        return None  # only Spark derives columns from the names of folders
    if origin.format == "parquet":
        check_names(listing.some(_CHECKED_FILES), wanted)
        return listing, ParquetFiles(wanted)
    form = CSV_LINES if origin.format == CSV_LINES else JSON
    header = form == CSV_LINES and is_true(origin.options, "header")
    return listing, TextFiles(wanted, form, csv_format(wanted.schema.names, origin.options), header)


def is_same_position(
    one: Mapping[str, Any], other: Mapping[str, Any], spools: tuple[Path, Path], path: Path
) -> bool:
    """Return True if two offsets of a file source have read the same rows.

    `one` and `other` are the offsets. A reader that began later may lack files that were deleted before it
    began.
    """
    if "followed" in one or "followed" in other:
        return one == other
    if one["file"] != other["file"]:
        return False
    read, again = (
        {*Ledger(spool).names(offset["seen"]), *offset["names"]}
        for spool, offset in zip(spools, (one, other), strict=True)
    )
    root = listing_of(path).root
    return again <= read and not any((root / name).exists() for name in read - again)


class FilesReader:
    """Reader of the files of a source, in order, as one partition."""

    def __init__(
        self, listing: Listing, form: FileFormat, ledger: Ledger, clock: Callable[[], int], most_files: int
    ) -> None:
        self._listing = listing
        self._form = form
        self._ledger = ledger
        self._clock = clock
        self._most_files = most_files
        self._offset: Any = None
        self._seen: set[str] | None = None
        self._waiting: deque[ListedFile] = deque()
        self._found_us = 0
        # Name of the unreadable file, its modification time, and the time of the first failure.
        self._failed: tuple[str, int, int] | None = None
        self._again_us = _FIRST_AGAIN_US
        # Ledger position, number of file names written at this position, and ledger position after them.
        self._written: tuple[int, int, int] | None = None
        self._sizes: dict[str, int] = {}  # sizes of the newest files that were read
        self._changed: dict[str, None] = {}  # names of read files whose size has changed
        self._checked_s = time.monotonic()

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """Read rows after an offset.

        All files of a batch are from one listing of the folder.
        """
        seen, names, current, memory = self._resumed(offset)
        blocks: list[FilePiece] = []
        listed = current is None and not self._waiting
        if listed:
            # Files are listed only before a batch, so that all rows of the batch have the same arrival time.
            self._waiting.extend(self._listing.new(seen))
            self._found_us = self._clock()
        left = limit_rows
        files = 0
        lost: list[tuple[str, str]] = []  # names of files that could not be read completely, with the reason
        try:
            while left > 0 and files < self._most_files:
                if current is None and not self._waiting:
                    break
                name, position = current or (self._waiting.popleft().name, 0)
                files += 1
                piece = self._take(name, position, left, memory)
                if isinstance(piece, str):
                    if piece:
                        lost.append((name or self._listing.root.name, piece))
                    piece = FilePiece(position, True, 0, None, memory)
                else:
                    blocks.append(piece)
                memory, left = piece.memory, left - piece.rows
                current = None if piece.ended else (name, piece.position)
                if piece.ended:
                    names.append(name)
                    seen.add(name)
                    self._note_size(name)
            batch = self._batch(blocks, lost)
        except BaseException:
            self._seen = None  # the rows of this failed read are read again from its offset
            raise
        batch.offset = self._offset = self._as_offset(offset, names, current, memory)
        batch.warning = self._warning()
        # Files may have been added since the listing.
        batch.more = current is not None or bool(self._waiting) or not listed
        # A source of a single file ends with that file.
        batch.ended = "" in seen and current is None
        batch.more = batch.more and not batch.ended
        if files:
            self._again_us = _FIRST_AGAIN_US
        batch.again_us = 0 if batch.more else self._pause_us(bool(files))
        return batch

    def commit(self, offset: Any) -> None:
        names = offset["names"]
        if len(names) >= _NAMES_IN_OFFSET:
            self._written = (offset["seen"], len(names), self._ledger.write(offset["seen"], names))

    def close(self) -> None:
        self._form.close()

    def _resumed(self, offset: Any | None) -> tuple[set[str], list[str], tuple[str, int] | None, Any]:
        if offset is None:
            offset = {"seen": 0, "names": [], "file": None, "memory": None}
        if self._seen is None or offset != self._offset:
            # The offset is not that of the last batch: this reader is new, or the last batch was
            # not committed.
            self._seen = {*self._ledger.names(offset["seen"]), *offset["names"]}
            self._waiting.clear()
            self._found_us = self._clock()
            self._sizes = dict(offset.get("sizes", {}))
        current = offset["file"]
        return (
            self._seen,
            list(offset["names"]),
            None if current is None else tuple(current),
            offset["memory"],
        )

    def _as_offset(
        self, before: Any | None, names: list[str], current: tuple[str, int] | None, memory: Any
    ) -> dict[str, Any]:
        index = 0 if before is None else before["seen"]
        if self._written is not None and self._written[0] == index:
            _, count, index = self._written
            names = names[count:]
        file = None if current is None else list(current)
        return {"seen": index, "names": names, "file": file, "memory": memory, "sizes": dict(self._sizes)}

    def _take(self, name: str, position: int, limit_rows: int, memory: Any) -> FilePiece | str:
        """Return a block of a file, or the reason why the file is unreadable.

        The reason is "" if the file was deleted before it was read.
        """
        path = self._listing.root / name
        try:
            written_ns = path.stat().st_mtime_ns
        except FileNotFoundError:
            return "this file was removed before it was read to its end" if position else ""
        except OSError as problem:
            raise unreadable(path, problem) from None
        try:
            return self._form.take(path, position, limit_rows, memory)
        except UnreadableFile as problem:
            self._form.close()
            if self._may_grow(name, written_ns):
                raise
            return f"{FILE_LOST}{' any further' if position else ''}: {problem.why}"

    def _may_grow(self, name: str, written_ns: int) -> bool:
        """Return True if a program may still be writing a file.

        The age of a file is negative if the clock was set back. So the time since the first failure is used
        too.
        """
        if self._failed is None or self._failed[:2] != (name, written_ns):
            self._failed = name, written_ns, time.monotonic_ns()
        age_ns = max(time.time_ns() - written_ns, time.monotonic_ns() - self._failed[2])
        return age_ns < _GROWING_NS

    def _batch(self, blocks: list[FilePiece], lost: list[tuple[str, str]]) -> SourceBatch:
        pieces = self._form.parse(blocks)
        errors = [bad for _, bad in pieces if bad is not None]
        if lost:
            errors.append(pa.table([list(part) for part in zip(*lost, strict=True)], schema=ERRORS))
        return SourceBatch(
            table=concat_nonempty([rows for rows, _ in pieces]),
            errors=concat_nonempty(errors),
            offset=None,
            arrival_us=self._found_us,
            more=False,
            again_us=None,
        )

    def _note_size(self, name: str) -> None:
        with suppress(OSError):
            self._sizes[name] = (self._listing.root / name).stat().st_size
        if len(self._sizes) > _WATCHED:
            del self._sizes[next(iter(self._sizes))]

    def _warning(self) -> str | None:
        """Return a warning if a file has changed after it was read."""
        if time.monotonic() - self._checked_s >= _CHECK_EVERY_S:
            self._checked_s = time.monotonic()
            for name, size in list(self._sizes.items()):
                with suppress(OSError):
                    if (self._listing.root / name).stat().st_size != size:
                        self._changed[name] = None
        if not self._changed:
            return None
        name = next(reversed(self._changed)) or self._listing.root.name
        others = len(self._changed) - 1
        more = f", and {format_count(others, 'other file')} as well," if others else ""
        return (
            f"{name}{more} changed after it was read, and each file is read once: what was added is missing; "
            "move whole files into the folder, or declare the stream with OPTIONS (…, follow 'true'), which "
            "reads lines that are appended"
        )

    def _pause_us(self, found: bool) -> int:
        """Return the time to the next poll.

        The time doubles while there is no new file. It is at least _SHARE_OF_POLLS times the duration of a
        poll.
        """
        pause_us = self._again_us
        if not found:
            self._again_us = min(2 * self._again_us, _MOST_AGAIN_US)
        return max(pause_us, int(_SHARE_OF_POLLS * self._listing.cost_s * 1_000_000))


# Parquet files, which are read by row group


def check_names(paths: Sequence[Path], wanted: WantedColumns) -> None:
    """Raise if a declared column is missing in all files.

    Unreadable files are ignored.
    """
    present: dict[str, None] = {}
    for path in paths:
        with contextlib.suppress(OSError, pa.ArrowException):
            present.update(dict.fromkeys(pq.read_schema(path).names))
    if present:
        check_columns(wanted.schema, list(present))


@dataclass(slots=True)
class ParquetFiles:
    """Format of Parquet files, in which positions are row numbers."""

    wanted: WantedColumns
    _file: ParquetRows | None = None

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        if self._file is None or self._file.path != path:
            self.close()
            self._file = ParquetRows.open(path, self.wanted)
        file = self._file
        parts, end = file.read(position, limit_rows)
        return FilePiece(end, end >= file.rows, end - position, parts, memory)

    def parse(self, blocks: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        return [(part.table, part.errors) for one in blocks for part in one.content]

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


# Tables (CREATE TABLE) from files, read without Spark


_ROWS_AT_ONCE = 100_000


def read_table(table: Table, folder: Path) -> pa.Table | None:
    """Read all rows of a table from its files, without bad rows.

    Return None if the source needs Spark. A table without a source is empty. Files are read in the order of
    their names.
    """
    wanted = WantedColumns.of_schema(table.encoded_schema, table.schema.names)
    if table.source == SourceSpec():
        return wanted.arrow.empty_table()
    origin = origin_of(table.source, table.name, folder)
    if origin.format not in (*LINES_IN_FILES, "parquet"):
        return None
    opened = open_format(origin, wanted)
    if opened is None:
        return None
    listing, form = opened
    tables: list[pa.Table] = []
    try:
        for name in sorted(found.name for found in listing.new(frozenset())):
            position, ended = 0, False
            while not ended:
                block = form.take(listing.root / name, position, _ROWS_AT_ONCE, None)
                position, ended = block.position, block.ended
                tables += [rows for rows, _ in form.parse([block])]
    finally:
        form.close()
    found_rows = concat_nonempty(tables)
    return wanted.arrow.empty_table() if found_rows is None else found_rows

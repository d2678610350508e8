"""Files of CSV or JSON lines: reading of blocks, compression, and CSV headers.

The header of a file determines the columns of its fields. The header is the first line that is not blank. A
repeated header line, as in concatenated files, is not a row. Problems of a header are reported as bad rows,
whose text is the header: missing columns for each file, and undeclared columns if the header differs from
that of the previous file.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.connectors.files.file_format import FilePiece
from slicemill.connectors.files.listing import Listing
from slicemill.errors import SlicemillError
from slicemill.functions.calendar import BLANKS
from slicemill.ingest.formats.checked import (
    ERRORS,
    UnreadableFile,
    WantedColumns,
    concat_nonempty,
    unreadable,
)
from slicemill.ingest.formats.csv import CsvFormat, header_notice, split_fields
from slicemill.ingest.formats.line_parser import LineParser
from slicemill.ingest.formats.lines import split
from slicemill.ingest.reader import SourceBatch

_BOM = b"\xef\xbb\xbf"
_BLANKS = BLANKS.encode()
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 22
_LINE_BYTES = 128
_ROWS_AT_ONCE = 100_000
_NEWLINE = 10


class LineFile:
    """File or file content that is read forward in blocks of complete lines."""

    def __init__(self, path: Path, content: bytes | None = None) -> None:
        self.path = path
        self._source = str(path) if content is None else pa.py_buffer(content)
        self._compression = COMPRESSION.get(path.suffix.lower())
        self._stream: Any = None
        self._open()

    def _open(self) -> None:
        self.close()
        try:
            self._stream = pa.input_stream(self._source, compression=self._compression)
        except OSError as problem:
            raise unreadable(self.path, problem) from None
        self._at = 0  # file position of the first byte in the buffer
        self._buffer = b""
        self._damage: SlicemillError | None = None  # error to raise after the bytes in the buffer

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def block(self, position: int, size: int) -> tuple[bytes, bool]:
        """Return about `size` bytes of complete lines, and True at the end of the file."""
        self._seek(position)
        while True:
            ended = not self._fill(size)
            if ended and self._damage is None:
                return self._buffer, True
            end = max(self._buffer.rfind(b"\n"), self._buffer[:-1].rfind(b"\r")) + 1
            if end:
                return self._buffer[:end], False
            if self._damage is not None:
                raise self._damage
            size = 2 * len(self._buffer)

    def _fill(self, size: int) -> bool:
        """Fill the buffer with `size` bytes.

        Return False at the end of the file.
        """
        parts = [self._buffer]
        length = len(self._buffer)
        while length < size and self._damage is None:
            try:
                data = self._read(size - length)
            except UnreadableFile as damage:
                self._damage, data = damage, b""
            if not data:
                break
            parts.append(data)
            length += len(data)
        self._buffer = b"".join(parts) if len(parts) > 1 else parts[0]
        return length >= size

    def _read(self, size: int) -> bytes:
        if self._compression is not None:
            size = min(size, _LEAST_BYTES)  # if decompression fails, all bytes of the failed call are lost
        try:
            data: bytes = self._stream.read(size)
        except OSError as problem:
            raise unreadable(self.path, problem) from None
        return data

    def _seek(self, position: int) -> None:
        skipped = position - self._at
        if 0 <= skipped <= len(self._buffer):
            self._buffer, self._at = self._buffer[skipped:], position
            return
        if self._compression is None:
            self._stream.seek(position)
            self._buffer, self._at = b"", position
            return
        if skipped < 0:
            self._open()
        self._at += len(self._buffer)
        self._buffer = b""
        while self._at < position:
            data = self._read(min(position - self._at, _MOST_BYTES))
            if not data:
                return
            self._at += len(data)


@dataclass(frozen=True, slots=True)
class Header:
    """Header line of a CSV file, with its column names and its end position."""

    line: bytes
    names: tuple[str, ...]
    end: int

    @property
    def mark(self) -> int:
        return zlib.crc32("\n".join(name.lower() for name in self.names).encode())


@dataclass(slots=True)
class TextFiles:
    """Format of CSV or JSON files of one declared stream or table.

    If `header` is set, CSV files have headers. If `growing` is set, an incomplete last line is left for a
    later read.
    """

    wanted: WantedColumns
    form: str
    csv: CsvFormat
    header: bool
    growing: bool = False
    _file: LineFile | None = None
    _head: tuple[Path, Header | None] | None = None
    _parsers: dict[tuple[str, ...], LineParser] = field(default_factory=dict)
    _line_bytes: float = _LINE_BYTES

    def take(self, path: Path, position: int, limit_rows: int, memory: Any) -> FilePiece:
        """Read about `limit_rows` lines of a file.

        `memory` is the checksum of the last header.
        """
        file = self._opened(path)
        parser, dropped, notice = self._parser(self.csv.names), b"", None
        if self.header:
            header = self._header_of(file)
            if header is None or (
                self.growing and not file.block(0, header.end)[0][: header.end].endswith(b"\n")
            ):
                return FilePiece(position, True, 0, None, memory)
            parser, dropped = self._parser(header.names), header.line
            if not position:
                known = header.mark == memory
                notice = header_notice(path.name, header.names, self.wanted.schema, known)
                memory, position = header.mark, header.end
        size = int(min(max(limit_rows * self._line_bytes, _LEAST_BYTES), _MOST_BYTES))
        data, end = file.block(position, size)
        if self.growing:
            data = data[: data.rfind(b"\n") + 1]
        if not position and data.startswith(_BOM):
            position, data = len(_BOM), data[len(_BOM) :]
        kept, rows = _limit_lines(data, limit_rows)
        if rows:
            self._line_bytes = (self._line_bytes + len(kept) / rows) / 2
        block = _Block(parser, dropped, kept, notice)
        return FilePiece(position + len(kept), end and len(kept) == len(data), rows, block, memory)

    def parse(self, blocks: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Parse blocks of files; return rows and bad rows.

        Blocks with the same header are parsed together.
        """
        pieces: list[tuple[pa.Table, pa.Table | None]] = []
        together: list[_Block] = []
        for one in blocks:
            block = one.content
            if block is None:
                continue
            if together and not block.is_like(together[0]):
                pieces.append(_parse_blocks(together))
                together = []
            together.append(block)
        if together:
            pieces.append(_parse_blocks(together))
        return pieces

    def whole(self, path: Path, content: bytes) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Yield rows and bad rows of a file with this content."""
        self.close()
        self._file, self._head = LineFile(path, content), None
        position, ended = 0, False
        while not ended:
            piece = self.take(path, position, _ROWS_AT_ONCE, None)
            position, ended = piece.position, piece.ended
            yield from self.parse([piece])

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.growing:
            self._head = None  # the next call may have another file with the same name

    def _opened(self, path: Path) -> LineFile:
        if self._file is None or self._file.path != path:
            self.close()
            self._file = LineFile(path)
        return self._file

    def _parser(self, names: Sequence[str]) -> LineParser:
        key = tuple(names)
        if key not in self._parsers:
            self._parsers[key] = LineParser(self.wanted, self.form, self.csv.with_names(key))
        return self._parsers[key]

    def _header_of(self, file: LineFile) -> Header | None:
        if self._head is None or self._head[0] != file.path:
            self._head = (file.path, read_header(file, self.csv))
        return self._head[1]


@dataclass(frozen=True, slots=True)
class _Block:
    """Block of lines of one file.

    Lines that equal `dropped` (the header) are not rows. `notice` is a warning about the file's header.
    """

    parser: LineParser
    dropped: bytes
    data: bytes
    notice: str | None

    def is_like(self, other: _Block) -> bool:
        return self.parser is other.parser and self.dropped == other.dropped and self.notice is None


def _parse_blocks(blocks: Sequence[_Block]) -> tuple[pa.Table, pa.Table | None]:
    first = blocks[0]
    ended = [block.data if block.data.endswith(b"\n") else block.data + b"\n" for block in blocks]
    lines = split(ended[0] if len(ended) == 1 else b"".join(ended))
    if first.dropped and first.dropped + b"\n" in lines.data:
        kept = [number for number in range(len(lines)) if lines.line(number) != first.dropped]
        lines = lines.select(np.array(kept, np.int64))
    parsed = first.parser.parse(lines)
    errors = parsed.errors
    if first.notice is not None:
        notice = pa.table([[first.dropped.decode(errors="replace")], [first.notice]], schema=ERRORS)
        errors = notice if errors is None else pa.concat_tables([notice, errors])
    return parsed.table, errors


def read_header(file: LineFile, form: CsvFormat) -> Header | None:
    """Read the header of a CSV file, or return None if all lines are blank."""
    position, size = 0, _LEAST_BYTES
    while True:
        data, ended = file.block(position, size)
        begin = len(_BOM) if not position and data.startswith(_BOM) else 0
        for line in data[begin:].splitlines(keepends=True):
            begin += len(line)
            bare = line.rstrip(b"\r\n")
            if bare.strip(_BLANKS):
                names = split_fields(bare.decode(errors="replace"), form)
                return Header(bare, tuple(name.strip(BLANKS) for name in names), position + begin)
        if ended:
            return None
        position += len(data)


def _limit_lines(data: bytes, limit_rows: int) -> tuple[bytes, int]:
    """Return the first `limit_rows` lines of a block, and the number of these lines."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if len(ends) > limit_rows:
        return data[: int(ends[limit_rows - 1]) + 1], limit_rows
    return data, len(ends) + (not data.endswith(b"\n") and bool(data))


# Growing files, of which appended complete lines are read, as with `tail -F`
#
# A file is identified by its inode and its first bytes. So reading of a rotated log file continues under its
# new name, and a truncated or replaced file is read from its beginning. A line is read when it is complete.
# Lines that are written between the last poll and the deletion of a file are lost, as with `tail -F`.
#
# An offset is `{"followed": [[name, inode, position, memory, [bytes, checksum]], …]}`.


_FIRST_AGAIN_US, _MOST_AGAIN_US = 50_000, 200_000
# Maximum number of followed files, because each offset names all of them.
_MOST_FILES = 1_000
# Number of bytes at the beginning of a file whose checksum distinguishes files with the same inode.
_MARK_BYTES = 256


@dataclass(slots=True)
class _FollowedFile:
    """Growing file with its read position, and a checksum of its first bytes."""

    name: str
    inode: int
    position: int = 0
    memory: Any = None
    mark: tuple[int, int] = (0, 0)


class FollowingReader:
    """Reader of growing files, as one partition."""

    def __init__(self, listing: Listing, form: TextFiles, clock: Callable[[], int]) -> None:
        self._listing = listing
        self._form = form
        self._clock = clock
        self._again_us = _FIRST_AGAIN_US

    def read(self, offset: Any | None, limit_rows: int) -> SourceBatch:
        """Read complete lines that were appended to the files after an offset."""
        known = {
            inode: _FollowedFile(name, inode, position, memory, (mark[0], mark[1]))
            for name, inode, position, memory, mark in (offset or {}).get("followed", ())
        }
        found_us = self._clock()
        listed = self._list_files()
        blocks: list[FilePiece] = []
        followed: list[_FollowedFile] = []
        left = limit_rows
        try:
            for name, status in listed:
                file = self._resumed(name, status, known.get(status.st_ino))
                followed.append(file)
                while left > 0 and file.position < status.st_size:
                    piece = self._form.take(self._listing.root / name, file.position, left, file.memory)
                    if piece.content is not None:
                        blocks.append(piece)
                    left -= piece.rows
                    file.position, file.memory = piece.position, piece.memory
                    if piece.ended:
                        break
                file.mark = self._mark(name, file.position)
        except FileNotFoundError:
            pass  # the file was renamed after the listing, so the next poll reads it
        except OSError as problem:
            raise unreadable(self._listing.root, problem) from None
        finally:
            self._form.close()
        pieces = self._form.parse(blocks)
        more = left <= 0
        self._again_us = _FIRST_AGAIN_US if blocks else min(2 * self._again_us, _MOST_AGAIN_US)
        names = {one.inode for one in followed}
        kept = [
            *followed,
            *(one for one in known.values() if one.inode not in names and _is_listed(one, listed)),
        ]
        return SourceBatch(
            table=concat_nonempty([rows for rows, _ in pieces]),
            errors=concat_nonempty([bad for _, bad in pieces if bad is not None]),
            offset={
                "followed": [[one.name, one.inode, one.position, one.memory, list(one.mark)] for one in kept]
            },
            arrival_us=found_us,
            more=more,
            again_us=0 if more else self._again_us,
        )

    def commit(self, offset: Any) -> None:
        """Do nothing, because the offset contains the whole state."""

    def close(self) -> None:
        self._form.close()

    def _list_files(self) -> list[tuple[str, os.stat_result]]:
        """Return the files in the order of their modification times."""
        found: list[tuple[str, os.stat_result]] = []
        for name in self._listing.names():
            if Path(name or self._listing.root.name).suffix.lower() in COMPRESSION:
                raise SlicemillError(
                    f"{name} is compressed, and only plain text can be followed; move it away"
                )
            try:
                found.append((name, (self._listing.root / name).stat()))
            except FileNotFoundError:
                continue
        if len(found) > _MOST_FILES:
            raise SlicemillError(
                f"{self._listing.root} has {len(found):,} files, and at most {_MOST_FILES:,} can be "
                "followed; move old ones away, or leave the option follow out"
            )
        return sorted(found, key=lambda one: (one[1].st_mtime_ns, one[0]))

    def _resumed(self, name: str, status: os.stat_result, known: _FollowedFile | None) -> _FollowedFile:
        """Return a growing file with the position from which reading continues.

        The position is 0 if the file was truncated or replaced.
        """
        if known is None or status.st_size < known.position:
            return _FollowedFile(name, status.st_ino)
        if known.position and self._mark(name, known.mark[0]) != known.mark:
            return _FollowedFile(name, status.st_ino)
        return _FollowedFile(name, status.st_ino, known.position, known.memory, known.mark)

    def _mark(self, name: str, position: int) -> tuple[int, int]:
        with (self._listing.root / name).open("rb") as file:
            begin = file.read(min(position, _MARK_BYTES))
        return len(begin), zlib.crc32(begin)


def _is_listed(one: _FollowedFile, listed: list[tuple[str, os.stat_result]]) -> bool:
    return any(status.st_ino == one.inode for _, status in listed)

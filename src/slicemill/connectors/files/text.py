"""Files of lines: blocks at byte positions, compression, and CSV headers.

A file's own header maps its fields to columns. The first line that is not blank is the header; a repeated
header line, as in concatenated files, is not a row. Problems of a header are bad rows with the header as
their text: missing columns for each file, and undeclared columns whenever the header differs from the
previous one.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.connectors.files.file_format import FilePiece
from slicemill.errors import SlicemillError
from slicemill.ingest.formats.checked import ERRORS, WantedColumns
from slicemill.ingest.formats.csv import CsvFormat, header_notice, split_fields
from slicemill.ingest.formats.line_parser import LineParser
from slicemill.ingest.formats.lines import split
from slicemill.ingest.formats.unreadable import UnreadableFile, unreadable
from slicemill.scalar.calendar import BLANKS

_BOM = b"\xef\xbb\xbf"
_BLANKS = BLANKS.encode()
COMPRESSION = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_LEAST_BYTES, _MOST_BYTES = 1 << 16, 1 << 22
_LINE_BYTES = 128
_ROWS_AT_ONCE = 100_000
_NEWLINE = 10


class LineFile:
    """File or content that is read forward in blocks of whole lines."""

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
        self._at = 0  # position of the first byte of the buffer
        self._buffer = b""
        self._damage: SlicemillError | None = None  # damage after the bytes in the buffer

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def block(self, position: int, size: int) -> tuple[bytes, bool]:
        """Return about `size` bytes of whole lines, and True at the file's end."""
        self._go_to(position)
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
        """Fill the buffer with `size` bytes. False at the end."""
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
            size = min(size, _LEAST_BYTES)  # damage loses all bytes that one call has unpacked
        try:
            data: bytes = self._stream.read(size)
        except OSError as problem:
            raise unreadable(self.path, problem) from None
        return data

    def _go_to(self, position: int) -> None:
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
    """Header line of a CSV file, with names and end position."""

    line: bytes
    names: tuple[str, ...]
    end: int

    @property
    def mark(self) -> int:
        return zlib.crc32("\n".join(name.lower() for name in self.names).encode())


@dataclass(slots=True)
class TextFiles:
    """CSV or JSON files of one declaration.

    `header` means that CSV files have headers. With `growing`, an incomplete last line is left for a later
    read.
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
        """Take about as many lines as requested.

        `memory` is the mark of the last header.
        """
        file = self._opened(path)
        parser, dropped, told = self._parser(self.csv.names), b"", None
        if self.header:
            header = self._header_of(file)
            if header is None or (
                self.growing and not file.block(0, header.end)[0][: header.end].endswith(b"\n")
            ):
                return FilePiece(position, True, 0, None, memory)
            parser, dropped = self._parser(header.names), header.line
            if not position:
                known = header.mark == memory
                told = header_notice(path.name, header.names, self.wanted.schema, known)
                memory, position = header.mark, header.end
        size = int(min(max(limit_rows * self._line_bytes, _LEAST_BYTES), _MOST_BYTES))
        data, end = file.block(position, size)
        if self.growing:
            data = data[: data.rfind(b"\n") + 1]
        if not position and data.startswith(_BOM):
            position, data = len(_BOM), data[len(_BOM) :]
        kept, rows = _limited(data, limit_rows)
        if rows:
            self._line_bytes = (self._line_bytes + len(kept) / rows) / 2
        block = _Block(parser, dropped, kept, told)
        return FilePiece(position + len(kept), end and len(kept) == len(data), rows, block, memory)

    def parse(self, taken: Sequence[FilePiece]) -> list[tuple[pa.Table, pa.Table | None]]:
        """Parse pieces into rows and bad rows, merging blocks of similar files."""
        pieces: list[tuple[pa.Table, pa.Table | None]] = []
        together: list[_Block] = []
        for one in taken:
            block = one.content
            if block is None:
                continue
            if together and not block.is_like(together[0]):
                pieces.append(_parsed(together))
                together = []
            together.append(block)
        if together:
            pieces.append(_parsed(together))
        return pieces

    def whole(self, path: Path, content: bytes) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Yield rows and bad rows of a file's content."""
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
            self._head = None  # the name may belong to another file next time

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
    """Lines of one file; `dropped` lines are not rows.

    `told` is an error of the file's header.
    """

    parser: LineParser
    dropped: bytes
    data: bytes
    told: str | None

    def is_like(self, other: _Block) -> bool:
        return self.parser is other.parser and self.dropped == other.dropped and self.told is None


def _parsed(blocks: Sequence[_Block]) -> tuple[pa.Table, pa.Table | None]:
    first = blocks[0]
    ended = [block.data if block.data.endswith(b"\n") else block.data + b"\n" for block in blocks]
    lines = split(ended[0] if len(ended) == 1 else b"".join(ended))
    if first.dropped and first.dropped + b"\n" in lines.data:
        kept = [number for number in range(len(lines)) if lines.line(number) != first.dropped]
        lines = lines.taken(np.array(kept, np.int64))
    parsed = first.parser.parse(lines)
    errors = parsed.errors
    if first.told is not None:
        told = pa.table([[first.dropped.decode(errors="replace")], [first.told]], schema=ERRORS)
        errors = told if errors is None else pa.concat_tables([told, errors])
    return parsed.table, errors


def read_header(file: LineFile, form: CsvFormat) -> Header | None:
    """Return the header: the first line that is not blank. None without one."""
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


def _limited(data: bytes, limit_rows: int) -> tuple[bytes, int]:
    """Return at most `limit_rows` lines, and their number."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE)
    if len(ends) > limit_rows:
        return data[: int(ends[limit_rows - 1]) + 1], limit_rows
    return data, len(ends) + (not data.endswith(b"\n") and bool(data))

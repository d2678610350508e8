"""Segments: append-only files of Arrow record batches with the rows of logs.

    logs/bid/w3.2-0.arrows         <writer>-<number>.arrows

    | schema | batch | batch | batch …        an Arrow IPC stream; any Arrow library can read it
             ^ extent: (segment, offset, length, rows, checksum)

Each writer appends Arrow messages to its own segment. No two processes write to one file, and no byte is
overwritten. An *extent* is the position of rows in a segment. A batch becomes valid when a journal record
names its extent. Other bytes of a crashed writer are ignored. A writer starts a new segment when the schema
changes or the old segment is full.

An extent's checksum is the CRC-32 of the segment's schema message followed by the extent's bytes. The journal
has the checksum, so a segment stays a plain Arrow stream. A reader verifies an extent before it parses the
rows, after each read from the file or once per memory mapping. Extents of FORMAT 5 have no checksum and are
read unverified.

Segments are mapped into memory: columns are views of the page cache, shared by all processes of the machine.
A small batch at the end of a growing segment is read and not mapped, because mapping a file again takes
longer than copying some kilobytes.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.storage.filesystem import (
    LOCAL,
    AppendFile,
    FileSystem,
    ensure_folder,
    exists,
    full_message,
    is_full,
)

SUFFIX = ".arrows"
ROLL_BYTES = 64 << 20

# Size above which LZ4 compression of rows takes less time than writing the saved bytes.
# Columns of very many rows compress much slower, so rows are compressed in parts of limited length.
_COMPRESSED_BYTES = 1 << 16
_COMPRESSED_ROWS = 1 << 17
_COMPRESSION = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

# Maximum number of segments that a process caches, and of segment files that it has open for appending.
_KNOWN_SEGMENTS = 1_024
_OPEN_FILES = 400

# Number of segments that are mapped into memory between two searches for mapped files that were removed.
_MAPS_BETWEEN_SEARCHES = 16

# A batch of at most _READ_BYTES is read and not mapped, until its segment was read _READS_BEFORE_MAP times.
_READ_BYTES = 1 << 18
_READS_BEFORE_MAP = 256
_SCHEMA_BYTES = 1 << 12

_REPAIR = (
    "restore it from a copy, or run 'slicemill home repair' to continue without what cannot be read "
    "('slicemill home check' lists it)"
)


class SegmentError(SlicemillError):
    """Error: a table cannot be appended to a segment, or rows cannot be read."""


class ExtentFreed(SegmentError):
    """Error: a segment file was removed because retention has deleted its rows."""


class ExtentDamaged(SegmentError):
    """Error: the bytes of rows or of a schema have changed since they were written."""


UNVERIFIED = -1  # value that stands for a missing checksum of an extent


class Extent(NamedTuple):
    """Position of rows in a segment file: usually one record batch.

    An extent with many compressed rows has several record batches.
    """

    segment: str
    offset: int
    length: int
    rows: int
    crc: int = UNVERIFIED  # checksum of the schema message and the extent's bytes


def segment_name(writer: str, number: int) -> str:
    return f"{writer}-{number}{SUFFIX}"


def parse_segment(name: str) -> tuple[str, int] | None:
    """Return the writer and the number in the name of a segment file, or None for other names.

    >>> parse_segment("w3.2-17.arrows")
    ('w3.2', 17)
    """
    writer, dash, number = name.removesuffix(SUFFIX).rpartition("-")
    return (writer, int(number)) if name.endswith(SUFFIX) and dash and number.isdigit() else None


class SegmentWriter:
    """Writer of the segment files of one log.

    The writer's name must not have been used by another process.
    """

    __slots__ = (
        "_end",
        "_file",
        "_files",
        "_folder",
        "_number",
        "_roll_bytes",
        "_schema",
        "_schema_crc",
        "_unsynced",
        "_writer",
    )

    def __init__(
        self, folder: Path, writer: str, *, roll_bytes: int = ROLL_BYTES, files: FileSystem = LOCAL
    ) -> None:
        self._folder = folder
        self._writer = writer
        self._roll_bytes = roll_bytes
        self._files = files
        self._number = -1
        self._file: AppendFile | None = None
        self._schema: pa.Schema | None = None
        self._schema_crc = 0
        self._end = 0
        self._unsynced: set[int] = set()

    def append(self, table: pa.Table, *, compress: bool = False) -> Extent:
        """Append rows to the current segment; return their position.

        Compressed rows cannot be mapped into memory without a copy. If the disk is full, raise StorageFull; a
        later append then continues after the previous successful append.
        """
        schema = table.schema
        start = -1
        try:
            file = self._segment(schema)
            start, crc = self._end, self._schema_crc
            for message in _messages(table, compress):
                crc = crc32(message, crc)
                file.write(message)
                self._end += len(message)
        except OSError as problem:
            self._undo(start)
            if is_full(problem):
                raise full_message(self._folder) from problem
            raise
        self._unsynced.add(self._number)
        name = segment_name(self._writer, self._number)
        return Extent(name, start, self._end - start, table.num_rows, crc)

    def sync(self) -> None:
        """Sync all rows that were appended since the last sync to disk."""
        for number in sorted(self._unsynced):
            if number == self._number and self._file is not None:
                self._file.sync()
            elif exists(self._files, self._path(number)):
                self._files.sync(self._path(number))
        if self._unsynced:
            self._files.sync(self._folder)
        self._unsynced.clear()

    def release(self) -> None:
        """Close the segment file. The next append opens the same file again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def finish(self) -> None:
        """End the current segment. The next append starts a new segment."""
        self.release()
        self._schema = None

    def _path(self, number: int) -> Path:
        return self._folder / segment_name(self._writer, number)

    def _segment(self, schema: pa.Schema) -> AppendFile:
        """Return the open file of the segment to which rows are appended.

        A new segment is started if the last segment is full, has another schema or was removed.
        """
        if self._schema is not None and self._end < self._roll_bytes and _same(schema, self._schema):
            if self._file is None and exists(self._files, self._path(self._number)):
                self._file = self._files.append(self._path(self._number))
            # If another process opens the home directory, it removes files that no commit references.
            if self._file is not None and not self._file.is_removed():
                return self._file
        return self._roll(schema)

    def _roll(self, schema: pa.Schema) -> AppendFile:
        """Start a new segment and write the schema of its rows as its first message."""
        if any(pa.types.is_dictionary(field.type) for field in schema):
            raise SegmentError("a dictionary column cannot be stored; decode it before it is appended")
        self.finish()
        while self._file is None:
            # A number is never reused, because readers may have cached the segment with this name.
            self._number += 1
            try:
                self._file = self._files.append(self._path(self._number), new=True)
            except FileNotFoundError:
                ensure_folder(self._files, self._folder)
                self._number -= 1
            except FileExistsError:
                continue
        head = schema.serialize()
        self._file.write(head)
        self._schema, self._schema_crc, self._end = schema, crc32(head), len(head)
        return self._file

    def _undo(self, end: int) -> None:
        """Truncate the bytes of a failed append, so that the segment can continue."""
        if self._file is not None and self._schema is None:
            # Writing the schema failed. If the file stayed, retries would add empty files to a full disk.
            self.release()
            self._files.remove(self._path(self._number))
        elif self._file is not None and end >= 0:
            try:
                self._file.cut(end)
                self._end = end
            except OSError:
                self.finish()


class SegmentWriters:
    """Segment writers of one process, with a limit on open files."""

    __slots__ = ("_files", "_open", "_roll_bytes", "_writers", "name")

    def __init__(self, name: str, *, roll_bytes: int = ROLL_BYTES, files: FileSystem = LOCAL) -> None:
        self.name = name
        self._roll_bytes = roll_bytes
        self._files = files
        self._writers: dict[Path, SegmentWriter] = {}
        self._open: OrderedDict[Path, SegmentWriter] = OrderedDict()

    def append(self, folder: Path, table: pa.Table, *, compress: bool = False) -> Extent:
        writer = self._open.get(folder)
        if writer is None:
            writer = self._opened(folder)
        else:
            self._open.move_to_end(folder)
        return writer.append(table, compress=compress)

    def sync(self) -> None:
        """Sync the rows that were appended to any log since the last sync to disk."""
        for writer in self._writers.values():
            writer.sync()

    def forget(self, folder: Path) -> None:
        """Close the segment file of a dropped log, given by its folder."""
        self._open.pop(folder, None)
        if folder in self._writers:
            self._writers[folder].finish()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.release()

    def _opened(self, folder: Path) -> SegmentWriter:
        found = self._writers.get(folder)
        if found is None:
            found = SegmentWriter(folder, self.name, roll_bytes=self._roll_bytes, files=self._files)
            self._writers[folder] = found
        self._open[folder] = found
        if len(self._open) > _OPEN_FILES:
            self._open.popitem(last=False)[1].release()
        return found


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    return bool(one.equals(other, check_metadata=True))


def _messages(table: pa.Table, compress: bool) -> list[pa.Buffer]:
    """Serialize rows as messages of an Arrow stream.

    There is one message unless the rows are compressed or have more than 2 GiB of text.
    """
    batches = table.to_batches()
    if len(batches) > 1:
        table = table.combine_chunks()
        batches = table.to_batches()
    if compress and table.num_rows and table.nbytes >= _COMPRESSED_BYTES:
        return _compress(table)
    if not batches:
        empty = [pa.array([], field.type) for field in table.schema]
        batches = [pa.record_batch(empty, schema=table.schema)]
    return [batch.serialize() for batch in batches]


def _compress(table: pa.Table) -> list[pa.Buffer]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=_COMPRESSION) as writer:
        writer.write_table(table, max_chunksize=_COMPRESSED_ROWS)
    stream = sink.getvalue()
    # The segment already has the schema, and needs no end mark, so both are cut off the Arrow stream.
    head = len(table.schema.serialize())
    return [stream.slice(head, len(stream) - head - 8)]


@dataclass(slots=True)
class _OpenSegment:
    """Segment file in the cache of a reader.

    The schema is parsed after a checksum has verified the schema message.
    """

    path: Path
    head: bytes
    schema_crc: int
    parsed: pa.Schema | None = None
    mapped: pa.Buffer | None = None
    size: int = 0
    reads: int = 0
    verified: set[int] = field(default_factory=set)  # offsets of extents verified since the file was mapped

    @property
    def schema(self) -> pa.Schema:
        if self.parsed is None:
            self.parsed = pa.ipc.read_schema(pa.py_buffer(self.head))
        return self.parsed

    def verify(self, extent: Extent, buffer: pa.Buffer) -> None:
        """Raise ExtentDamaged unless the bytes of an extent (some rows in the file) match its checksum."""
        if extent.crc != UNVERIFIED and crc32(buffer, self.schema_crc) != extent.crc:
            raise ExtentDamaged(
                f"segment {self.path} is damaged: the checksum of {extent.rows:,} rows at {extent.offset} "
                f"differs; {_REPAIR}"
            )


class _ConcatenatedFile:
    """File-like object over two buffers, from which Arrow reads without a copy."""

    closed = False

    def __init__(self, first: pa.Buffer, second: pa.Buffer) -> None:
        self._parts = [first, second]

    def read_buffer(self, size: int) -> pa.Buffer:
        # No message spans both buffers: the first buffer is one message, the second starts with a message.
        while len(self._parts) > 1 and not len(self._parts[0]):
            del self._parts[0]
        part = self._parts[0]
        size = min(size, len(part))
        self._parts[0] = part.slice(size)
        return part.slice(0, size)

    read = read_buffer

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True


@contextmanager
def _raise_extent_damage(path: Path, offset: int) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise ExtentFreed(f"segment {path} is gone: its rows were freed") from None
    except (pa.ArrowInvalid, OSError, EOFError) as problem:
        raise ExtentDamaged(f"segment {path} cannot be read at {offset}: {problem}; {_REPAIR}") from problem


class SegmentReader:
    """Reader of rows in segments, with a bounded cache of mapped files and schemas."""

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._segments: OrderedDict[tuple[Path, str], _OpenSegment] = OrderedDict()
        self._maps = 0

    def read(self, folder: Path, extent: Extent) -> pa.Table:
        with _raise_extent_damage(folder / extent.segment, extent.offset):
            segment = self._segment(folder, extent)
            return _decode_rows(self._buffer(segment, [extent]), extent.rows, segment.schema)

    def columns_of(self, folder: Path, extent: Extent) -> list[str]:
        """Return the column names of the segment in which an extent lies."""
        with _raise_extent_damage(folder / extent.segment, 0):
            segment = self._segment(folder, extent)
            if segment.parsed is None:
                self._buffer(segment, [extent])  # reading the extent also verifies the schema
            return list(segment.schema.names)

    def read_columns(self, folder: Path, run: Sequence[Extent], columns: Collection[str]) -> pa.Table:
        """Read some columns of extents that are adjacent in one segment, without decoding other columns."""
        rows = sum(extent.rows for extent in run)
        with _raise_extent_damage(folder / run[0].segment, run[0].offset):
            segment = self._segment(folder, run[0])
            buffer = self._buffer(segment, run)
            source = _ConcatenatedFile(segment.schema.serialize(), buffer)
            indices = [index for index, name in enumerate(segment.schema.names) if name in columns]
            options = pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
            with pa.ipc.open_stream(pa.PythonFile(source, mode="r"), options=options) as stream:
                table = stream.read_all()
            if table.num_rows != rows:
                raise EOFError(f"there are {table.num_rows} rows instead of {rows}")
            return table

    def _segment(self, folder: Path, extent: Extent) -> _OpenSegment:
        key = (folder, extent.segment)
        with self._lock:
            found = self._segments.get(key)
            if found is not None:
                self._segments.move_to_end(key)
                return found
        path = folder / extent.segment
        head = _schema_message(self._files, path, extent.offset)
        opened = _OpenSegment(path, head, crc32(head))
        with self._lock:
            self._segments[key] = opened
            if len(self._segments) > _KNOWN_SEGMENTS:
                self._segments.popitem(last=False)
        return opened

    def _buffer(self, segment: _OpenSegment, run: Sequence[Extent]) -> pa.Buffer:
        """Return the bytes of extents that are adjacent in one segment, after verifying their checksums."""
        offset, end = run[0].offset, run[-1].offset + run[-1].length
        if end > segment.size:
            if end - offset <= _READ_BYTES and segment.reads < _READS_BEFORE_MAP:
                segment.reads += 1
                read = pa.py_buffer(self._files.read(segment.path, offset, end - offset))
                if len(read) < end - offset:
                    raise EOFError(f"it ends before {end}")
                for extent in run:
                    segment.verify(extent, read.slice(extent.offset - offset, extent.length))
                return read
            self._map(segment)
        mapped = segment.mapped
        if mapped is None or end > len(mapped):
            raise EOFError(f"it ends before {end}")
        for extent in run:
            if extent.offset not in segment.verified:
                segment.verify(extent, mapped.slice(extent.offset, extent.length))
                segment.verified.add(extent.offset)
        return mapped.slice(offset, end - offset)

    def _map(self, segment: _OpenSegment) -> None:
        self._maps += 1
        if self._maps % _MAPS_BETWEEN_SEARCHES == 0:
            self._forget_removed()
        mapped = self._files.map(segment.path)
        segment.mapped, segment.size, segment.reads = mapped, len(mapped), 0
        segment.verified = set()

    def _forget_removed(self) -> None:
        """Unmap removed files, which use disk space while they are mapped."""
        with self._lock:
            known = list(self._segments.items())
        mapped = [(key, segment.path) for key, segment in known if segment.mapped is not None]
        gone = [key for key, path in mapped if not exists(self._files, path)]
        with self._lock:
            for key in gone:
                self._segments.pop(key, None)


_LOCAL_READER = SegmentReader(LOCAL)


def reader_of(files: FileSystem) -> SegmentReader:
    """Return the segment reader of a file system; local files share one reader."""
    return _LOCAL_READER if files is LOCAL else SegmentReader(files)


def read_extent(folder: Path, extent: Extent, files: FileSystem = LOCAL) -> pa.Table:
    """Read the rows at a position in a segment. Raise ExtentFreed if retention has deleted them."""
    return reader_of(files).read(folder, extent)


def _schema_message(files: FileSystem, path: Path, end: int) -> bytes:
    """Return the schema message at the start of a segment file.

    The schema message ends at `end` or earlier.
    """
    head = files.read(path, 0, min(_SCHEMA_BYTES, end))
    # A message starts with a mark of 4 bytes and the length of its remaining bytes.
    length = 8 + int.from_bytes(head[4:8], "little")
    if length > end:
        raise EOFError("its schema is damaged")
    return head[:length] if length <= len(head) else files.read(path, 0, length)


def _decode_rows(buffer: pa.Buffer, rows: int, schema: pa.Schema) -> pa.Table:
    batches = [pa.ipc.read_record_batch(buffer, schema)]
    if batches[0].num_rows != rows:
        source = pa.BufferReader(buffer)
        batches = []
        while source.tell() < len(buffer):
            batches.append(pa.ipc.read_record_batch(pa.ipc.read_message(source), schema))
    table = pa.Table.from_batches(batches, schema)
    if table.num_rows != rows:
        raise EOFError(f"there are {table.num_rows} rows instead of {rows}")
    return table

"""Checkpoints: operator state of one subtask (parallel instance of a task), in files.

A checkpoint has one head file, and one file for each new *slice*, an immutable table of state rows.

    encoded = encode_states(states)               # between two micro-batches; copies only mutable state
    files = write(folder, encoded)                # in any thread, at any later time
    states = read_checkpoint(folder, files)

A slice (`slicemill.columns.pieces`) is written once, and later checkpoints only reference it. Its file is
mapped into memory on first access. All other state is in the head file:

    SLMSTATE  version  crc32 of the JSON  length of the JSON  JSON  padding  buffers (aligned to 64 bytes)

The JSON has the tree of the states (`slicemill.codec`), the names of the slices and the position of each
buffer. A head file is mapped into memory too, and its tables are views of the mapped bytes. File names are
unique, and a file is not read before the journal names it. So files are written in place, and a crash only
leaves unreferenced files.

The journal has the CRC-32 of every file. The head file is verified before it is decoded. A slice is
verified when it is mapped. When state is restored, slices are verified with the head file, so that damage
is found while the previous checkpoint still exists. Files of FORMAT 5 have no checksum and are read
unverified.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.codec.encoder import Encoded
from slicemill.codec.registry import StorageError
from slicemill.codec.state import decode, encode
from slicemill.columns.pieces import Slice
from slicemill.storage.filesystem import LOCAL, FileSystem, ensure_folder, unique_name

# Files of a checkpoint as a JSON list of entries [path, checksum, bytes], the head file first.
# Paths are relative to the checkpoint folder of the task.
# Entries of FORMAT 5 have no checksum.
CheckpointFiles: TypeAlias = list[list[Any]]

HEAD_SUFFIX, SLICE_SUFFIX = ".state", ".arrow"

_MAGIC = b"SLMSTATE"
_VERSION = 1
_START = struct.Struct("<8sIIQ")
_ALIGNMENT = 64
_REPAIR = "restore it from a copy, or run 'slicemill home repair' to let its queries begin anew"


class CheckpointDamaged(StorageError):
    """Error: a checkpoint file is missing, or its bytes have changed since it was written."""


class SliceFile(NamedTuple):
    """File of a slice (immutable table of state rows); the value of `Slice.stored`."""

    path: str
    bytes: int
    crc: int | None = None  # checksum of the file, or None for a file in FORMAT 5

    def file_entry(self) -> list[Any]:
        """Return the JSON entry of the file for the journal: [path, checksum, bytes]."""
        return [self.path, self.bytes] if self.crc is None else [self.path, self.crc, self.bytes]


@dataclass(slots=True)
class EncodedStates:
    """Encoded operator states of a checkpoint, ready to be written to files."""

    encoded: Encoded
    slices: list[Slice] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.encoded.tree["value"]["$map"]


def write_checkpoint(
    folder: Path, states: Mapping[str, object], files: FileSystem = LOCAL, durable: bool = False
) -> CheckpointFiles:
    """Write a checkpoint with the operator state of each graph node; return the files of the checkpoint.

    The list is empty if no operator has state.
    """
    return write(folder, encode_states(states, copied=False), files, durable)


def encode_states(states: Mapping[str, object], *, copied: bool = True) -> EncodedStates:
    """Encode operator states for a checkpoint; copy mutable data unless `copied` is False."""
    slices: list[Slice] = []

    def store(slice_: Slice) -> int:
        slices.append(slice_)
        return len(slices) - 1

    return EncodedStates(encode(dict(states), {Slice: store}, copied=copied), slices)


def write(
    folder: Path, states: EncodedStates, files: FileSystem = LOCAL, durable: bool = False
) -> CheckpointFiles:
    """Write a checkpoint: the head file, and the state tables that have no file yet.

    The encoded states are released while they are written, to save memory, and can be written only once.
    """
    if states.empty:
        return []
    ensure_folder(files, folder, durable)
    slices = [_store_slice(folder, slice_, files, durable) for slice_ in states.slices]
    data = _head(states.encoded, slices)
    path = unique_name() + HEAD_SUFFIX
    files.write(folder / path, data)
    if durable:
        files.sync(folder / path)
        files.sync(folder)
    return [[path, zlib.crc32(data), data.size], *(each.file_entry() for each in slices)]


def read_checkpoint(
    folder: Path, written: Sequence[Sequence[Any]], files: FileSystem = LOCAL, *, whole: bool = False
) -> dict[str, object]:
    """Read the operator state of each graph node from a checkpoint, or raise CheckpointDamaged.

    Slices (state tables in files of their own) are mapped into memory on first access. They are verified on
    first access, or at once if `whole` is True.
    """
    if not written:
        return {}
    for entry in written[1:] if whole else ():
        if problem := damage(folder, entry, files):
            raise CheckpointDamaged(f"the slice {folder / entry[0]} {problem}; {_REPAIR}")
    content, buffers = _read_head(folder, written[0], files)
    named = [SliceFile(*fields) for fields in content["slices"]]
    opened: dict[int, Slice] = {}

    def find(number: int) -> Slice:
        if number not in opened:
            stored = named[number]
            opened[number] = Slice(lambda: _map_slice(folder, stored, files, verify=not whole), stored)
        return opened[number]

    states: dict[str, object] = decode(content["states"], buffers, find)
    return states


def damage(folder: Path, entry: Sequence[Any], files: FileSystem = LOCAL) -> str:
    """Return a description of a checkpoint file's damage, or "" for an undamaged file."""
    path, *crc, size = entry
    try:
        found = files.stat(folder / path).bytes
        if found != size:
            return f"has {found} bytes instead of {size}"
        if crc and size and zlib.crc32(files.map(folder / path)) != crc[0]:
            return "is damaged: its checksum differs"
    except FileNotFoundError:
        return "is missing"
    except OSError as problem:
        return f"cannot be read: {problem}"
    return ""


def describe(folder: Path, written: Sequence[Sequence[Any]], files: FileSystem = LOCAL) -> dict[str, Any]:
    """Return the JSON of a checkpoint's head file, for inspection."""
    content, _ = _read_head(folder, written[0], files)
    return content


# -- files of slices (state tables) -------------------------------------------------------------------------


def _store_slice(folder: Path, slice_: Slice, files: FileSystem, durable: bool) -> SliceFile:
    known = slice_.stored
    if isinstance(known, SliceFile) and _exists(folder / known.path, known.bytes, files):
        return known
    # The slice has no file yet, or its file is in another folder or was removed before a commit.
    data = _encode_table(slice_.table)
    made = SliceFile(unique_name() + SLICE_SUFFIX, data.size, zlib.crc32(data))
    files.write(folder / made.path, data)
    if durable:
        files.sync(folder / made.path)
    slice_.set_stored(made, lambda: _map_slice(folder, made, files, verify=False))
    return made


def _exists(path: Path, size: int, files: FileSystem) -> bool:
    try:
        return files.stat(path).bytes == size
    except FileNotFoundError:
        return False


def _encode_table(table: pa.Table) -> pa.Buffer:
    """Return the bytes of a table as an Arrow IPC file with one batch.

    The size is computed first, so that the buffer of the bytes never grows.
    """
    whole = table.combine_chunks() if any(column.num_chunks > 1 for column in table.columns) else table
    counted = pa.MockOutputStream()
    _write_file(counted, whole)
    data = pa.allocate_buffer(counted.size())
    _write_file(pa.FixedSizeBufferWriter(data), whole)
    return data


def _write_file(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _map_slice(folder: Path, stored: SliceFile, files: FileSystem, *, verify: bool) -> pa.Table:
    path = folder / stored.path
    if verify and (problem := damage(folder, stored.file_entry(), files)):
        raise CheckpointDamaged(f"the slice {path} cannot be read: it {problem}; {_REPAIR}")
    try:
        return pa.ipc.open_file(files.map(path)).read_all()
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        raise CheckpointDamaged(f"the slice {path} cannot be read: {problem}") from problem


# -- head file of a checkpoint ------------------------------------------------------------------------------


def _head(encoded: Encoded, slices: Sequence[SliceFile]) -> pa.Buffer:
    buffers = encoded.buffers()
    if len(buffers) != encoded.tree["buffers"]:
        raise StorageError("encoded states are written once: encode them again")
    encoded.payloads.clear()
    ranges, end = [], 0
    for buffer in buffers:
        ranges.append([end, buffer.size])
        end = _align(end + buffer.size)
    content = {"states": encoded.tree, "slices": [list(each) for each in slices], "buffers": ranges}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    begin = _align(_START.size + len(text))
    data = pa.allocate_buffer(begin + end)
    # NumPy releases the global interpreter lock while it copies, so other threads continue to run.
    out = np.frombuffer(data, np.uint8)
    start = _START.pack(_MAGIC, _VERSION, zlib.crc32(text), len(text))
    out[:begin] = np.frombuffer((start + text).ljust(begin, b"\0"), np.uint8)
    buffers.reverse()
    for offset, size in ranges:
        at, buffer = begin + offset, buffers.pop()
        out[at : at + size] = np.frombuffer(buffer, np.uint8) if size else 0
        out[at + size : _align(at + size)] = 0
        del buffer  # the memory of the buffer is released before the next buffer is copied
    return data


def _read_head(
    folder: Path, entry: Sequence[Any], files: FileSystem
) -> tuple[dict[str, Any], list[pa.Buffer]]:
    path, *crc, _ = (folder / entry[0], *entry[1:])
    try:
        data = files.map(path)
    except FileNotFoundError:
        raise CheckpointDamaged(f"the checkpoint {path} is gone; {_REPAIR}") from None
    if data.size < _START.size:
        raise CheckpointDamaged(f"{path} is no checkpoint, or only the beginning of one; {_REPAIR}")
    magic, version, check, length = _START.unpack(data.slice(0, _START.size))
    if magic != _MAGIC:
        raise CheckpointDamaged(f"{path} is no checkpoint; {_REPAIR}")
    if version != _VERSION:
        raise StorageError(
            f"the checkpoint {path} has format {version}, and this slicemill reads {_VERSION}: run "
            f"`slicemill home upgrade` with the version of slicemill that wrote it"
        )
    if crc and zlib.crc32(data) != crc[0]:
        raise CheckpointDamaged(f"the checkpoint {path} is damaged: its checksum differs; {_REPAIR}")
    text = data.slice(_START.size, min(length, data.size - _START.size))
    if text.size < length or zlib.crc32(text) != check:
        raise CheckpointDamaged(f"the checkpoint {path} is damaged: its checksum differs; {_REPAIR}")
    content: dict[str, Any] = json.loads(text.to_pybytes())
    begin = _align(_START.size + length)
    ranges = content["buffers"]
    if ranges and begin + sum(ranges[-1]) > data.size:
        raise CheckpointDamaged(f"the checkpoint {path} is damaged: it is shorter than it says; {_REPAIR}")
    return content, [data.slice(begin + offset, size) for offset, size in ranges]


def _align(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT

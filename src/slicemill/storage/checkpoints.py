"""Checkpoints: the state of the operators of one cell, in one head file and a file for each new slice.

    encoded = encode_states(states)               # between two runs: copies only what may still change
    files = write(folder, encoded)                # any thread, any time later
    states = read_checkpoint(folder, files)

A slice (`slicemill.storage.slice`) never changes, so it is written once and only named again by later
checkpoints; it is mapped when it is first looked at. All else is in the head file:

    SLMSTATE  version  crc32 of the JSON  length of the JSON  JSON  padding  buffers, each at a multiple of 64

The JSON has the tree of the states (`slicemill.storage.codec`), the names of the slices and where each buffer
lies. A head file is mapped too: tables lie over its bytes. Names are unique and a file is not read before
somebody names it, so files are written in place: what a dead writer left is an orphan, whole or not.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from slicemill.storage.codec import Encoded, StorageError, decode, encode
from slicemill.storage.files import LOCAL, FileSystem, ensure_folder, unique_name
from slicemill.storage.slice import Slice

# Plain JSON: [path, bytes] of each file, relative to the folder, the head file first.
CheckpointFiles: TypeAlias = list[list[Any]]

HEAD_SUFFIX, SLICE_SUFFIX = ".state", ".arrow"

_MAGIC = b"SLMSTATE"
_VERSION = 1
_START = struct.Struct("<8sIIQ")
_ALIGNMENT = 64


class SliceFile(NamedTuple):
    """Where a slice lies: `Slice.stored` of one that was written, or read."""

    path: str
    bytes: int


@dataclass(slots=True)
class EncodedStates:
    """States that are ready to be written: nothing in here changes when operators go on."""

    encoded: Encoded
    slices: list[Slice] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not self.encoded.tree["value"]["$map"]


def write_checkpoint(
    folder: Path, states: Mapping[str, object], files: FileSystem = LOCAL, durable: bool = False
) -> CheckpointFiles:
    """Write what operators keep, by node; the files that `read_checkpoint` needs, none if nothing is kept."""
    return write(folder, encode_states(states, copied=False), files, durable)


def encode_states(states: Mapping[str, object], *, copied: bool = True) -> EncodedStates:
    """Return states as they are now. What may still change is copied, unless they are written at once."""
    slices: list[Slice] = []

    def store(slice_: Slice) -> int:
        slices.append(slice_)
        return len(slices) - 1

    return EncodedStates(encode(dict(states), {Slice: store}, copied=copied), slices)


def write(
    folder: Path, states: EncodedStates, files: FileSystem = LOCAL, durable: bool = False
) -> CheckpointFiles:
    """Write a head file, and the slices that are not in the folder yet."""
    if states.empty:
        return []
    ensure_folder(files, folder, durable)
    slices = [_stored(folder, slice_, files, durable) for slice_ in states.slices]
    data = _head(states.encoded, slices)
    path = unique_name() + HEAD_SUFFIX
    files.write(folder / path, data)
    if durable:
        files.sync(folder / path)
        files.sync(folder)
    return [[path, data.size], *([each.path, each.bytes] for each in slices)]


def read_checkpoint(
    folder: Path, written: Sequence[Sequence[Any]], files: FileSystem = LOCAL
) -> dict[str, object]:
    """The states of a checkpoint, by node. Slices are mapped when they are first looked at."""
    if not written:
        return {}
    content, buffers = _read_head(folder / written[0][0], files)
    named = [SliceFile(path, size) for path, size in content["slices"]]
    opened: dict[int, Slice] = {}

    def find(number: int) -> Slice:
        if number not in opened:
            stored = named[number]
            opened[number] = Slice(lambda: _mapped(folder / stored.path, files), stored)
        return opened[number]

    states: dict[str, object] = decode(content["states"], buffers, find)
    return states


def describe(folder: Path, written: Sequence[Sequence[Any]], files: FileSystem = LOCAL) -> dict[str, Any]:
    """The JSON of a checkpoint's head, for people to look at."""
    content, _ = _read_head(folder / written[0][0], files)
    return content


# -- slices -------------------------------------------------------------------------------------------------


def _stored(folder: Path, slice_: Slice, files: FileSystem, durable: bool) -> SliceFile:
    known = slice_.stored
    if isinstance(known, SliceFile) and _is_there(folder / known.path, known.bytes, files):
        return known
    # New, or of a checkpoint that was never committed and has been swept, or of another folder.
    data = _file_of(slice_.table)
    made = SliceFile(unique_name() + SLICE_SUFFIX, data.size)
    files.write(folder / made.path, data)
    if durable:
        files.sync(folder / made.path)
    slice_.stored = made
    return made


def _is_there(path: Path, size: int, files: FileSystem) -> bool:
    try:
        return files.stat(path).bytes == size
    except FileNotFoundError:
        return False


def _file_of(table: pa.Table) -> pa.Buffer:
    """A table as an Arrow IPC file of one batch; its size is found first, so that nothing is copied twice."""
    whole = table.combine_chunks() if any(column.num_chunks > 1 for column in table.columns) else table
    counted = pa.MockOutputStream()
    _write_file(counted, whole)
    data = pa.allocate_buffer(counted.size())
    _write_file(pa.FixedSizeBufferWriter(data), whole)
    return data


def _write_file(sink: pa.NativeFile, table: pa.Table) -> None:
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def _mapped(path: Path, files: FileSystem) -> pa.Table:
    try:
        return pa.ipc.open_file(files.map(path)).read_all()
    except (FileNotFoundError, pa.ArrowInvalid) as problem:
        raise StorageError(f"the slice {path} cannot be read: {problem}") from problem


# -- the head -----------------------------------------------------------------------------------------------


def _head(encoded: Encoded, slices: Sequence[SliceFile]) -> pa.Buffer:
    buffers = encoded.buffers()
    ranges, end = [], 0
    for buffer in buffers:
        ranges.append([end, buffer.size])
        end = _aligned(end + buffer.size)
    content = {"states": encoded.tree, "slices": [list(each) for each in slices], "buffers": ranges}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
    begin = _aligned(_START.size + len(text))
    data = pa.allocate_buffer(begin + end)
    out = memoryview(data).cast("B")
    start = _START.pack(_MAGIC, _VERSION, zlib.crc32(text), len(text))
    out[:begin] = (start + text).ljust(begin, b"\0")
    for (offset, size), buffer in zip(ranges, buffers, strict=True):
        at = begin + offset
        out[at : at + size] = memoryview(buffer).cast("B")
        out[at + size : _aligned(at + size)] = bytes(_aligned(size) - size)
    return data


def _read_head(path: Path, files: FileSystem) -> tuple[dict[str, Any], list[pa.Buffer]]:
    try:
        data = files.map(path)
    except FileNotFoundError:
        raise StorageError(f"the checkpoint {path} is gone") from None
    if data.size < _START.size:
        raise StorageError(f"{path} is no checkpoint, or only the beginning of one")
    magic, version, check, length = _START.unpack(data.slice(0, _START.size))
    if magic != _MAGIC:
        raise StorageError(f"{path} is no checkpoint")
    if version != _VERSION:
        raise StorageError(
            f"the checkpoint {path} has format {version}, and this slicemill reads {_VERSION}: run "
            f"`slicemill home upgrade` with the version of slicemill that wrote it"
        )
    text = data.slice(_START.size, min(length, data.size - _START.size))
    if text.size < length or zlib.crc32(text) != check:
        raise StorageError(f"the checkpoint {path} is damaged: its checksum differs")
    content: dict[str, Any] = json.loads(text.to_pybytes())
    begin = _aligned(_START.size + length)
    ranges = content["buffers"]
    if ranges and begin + sum(ranges[-1]) > data.size:
        raise StorageError(f"the checkpoint {path} is damaged: it is shorter than it says")
    return content, [data.slice(begin + offset, size) for offset, size in ranges]


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT

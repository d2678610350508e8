"""What the steps of a task keep between runs, as chunks: one with everything small, and one per slice.

The states of all steps are pickled together. Slices in them are not: each is written as a chunk of its own
when it is new, and the pickle refers to it by the chunk's place in the list.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle

from slicemill.kernels.slice import Slice
from slicemill.storage.chunk import ChunkInfo, open_chunk, write_chunk
from slicemill.storage.state import SLICES

_STATE = "state"


def store_state(folder: Path, states: Mapping[str, object]) -> tuple[ChunkInfo, ...]:
    """Write what is new; the chunks that `load_state` needs, none if there is nothing to keep."""
    if not states:
        return ()
    data = io.BytesIO()
    pickler = _Pickler(data, folder)
    pickler.dump(dict(states))  # type: ignore[no-untyped-call]
    table = pa.table({_STATE: pa.array([data.getbuffer()], pa.large_binary())})
    return write_chunk(folder, SLICES, table), *pickler.chunks


def load_state(folder: Path, chunks: Sequence[ChunkInfo]) -> Mapping[str, object]:
    if not chunks:
        return {}
    head = open_chunk(folder, chunks[0]).column(_STATE)[0].as_buffer()
    return cast(Mapping[str, object], _Unpickler(pa.BufferReader(head), folder, chunks[1:]).load())


class _Pickler(cloudpickle.Pickler):
    def __init__(self, file: io.BytesIO, folder: Path) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)  # type: ignore[no-untyped-call]
        self.chunks: list[ChunkInfo] = []
        self._folder = folder
        self._places: dict[int, int] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Slice):
            return None
        if id(obj) not in self._places:
            if not isinstance(obj.stored, ChunkInfo):
                obj.stored = write_chunk(self._folder, SLICES, obj.table)
            self._places[id(obj)] = len(self.chunks)
            self.chunks.append(obj.stored)
        return self._places[id(obj)]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, folder: Path, chunks: Sequence[ChunkInfo]) -> None:
        super().__init__(file)
        self._folder = folder
        self._chunks = chunks
        self._opened: dict[int, Slice] = {}

    def persistent_load(self, pid: int) -> Slice:
        chunk = self._chunks[pid]
        return self._opened.setdefault(pid, Slice(lambda: open_chunk(self._folder, chunk), chunk))

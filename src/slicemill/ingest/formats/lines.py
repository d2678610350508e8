"""Lines of a block of bytes, with vectorized search and selection of lines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from slicemill.kernels.arrays import Int64s

_NEWLINE = 10


@dataclass(frozen=True, slots=True)
class TextLines:
    """Lines of a block of bytes, each with its line end.

    Line n is data[edges[n]:edges[n + 1]].
    """

    data: bytes
    edges: Int64s

    def __len__(self) -> int:
        return len(self.edges) - 1

    def array(self, type_: pa.DataType) -> pa.Array:
        """Return the lines as an Arrow array with 64-bit offsets."""
        buffers = [None, pa.py_buffer(self.edges), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(type_, len(self), buffers)

    def line(self, number: int) -> bytes:
        """Return the line with this number, without its line end."""
        return self.data[int(self.edges[number]) : int(self.edges[number + 1]) - 1]

    def text(self, number: int) -> str:
        return self.line(number).decode(errors="replace")

    def select(self, numbers: Int64s) -> TextLines:
        """Return the lines with these numbers, in this order."""
        if len(numbers) == len(self):
            return self
        chosen = self.array(pa.large_binary()).take(pa.array(numbers))
        edges = np.frombuffer(chosen.buffers()[1], np.int64, len(numbers) + 1)
        data = chosen.buffers()[2]
        return TextLines(b"" if data is None else data.to_pybytes()[: int(edges[-1])], edges)

    def with_byte(self, byte: bytes) -> Int64s:
        """Return the numbers of the lines that contain this byte."""
        if byte not in self.data:
            return np.empty(0, np.int64)
        offsets = np.flatnonzero(np.frombuffer(self.data, np.uint8) == byte[0])
        return self.at(offsets)

    def at(self, offsets: Int64s) -> Int64s:
        """Return the numbers of the lines that contain these byte offsets."""
        return np.unique(np.searchsorted(self.edges, offsets, side="right") - 1)


def split(data: bytes, universal: bool = True) -> TextLines:
    """Split a text at \\n or \\r\\n and, if `universal`, at \\r."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
        if universal:
            data = data.replace(b"\r", b"\n")
    if data and not data.endswith(b"\n"):
        data += b"\n"
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == _NEWLINE) + 1
    edges = np.zeros(len(ends) + 1, np.int64)
    edges[1:] = ends
    return TextLines(data, edges)

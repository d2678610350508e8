"""What comes of a value that is stored in a checkpoint and read again."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from slicemill.codec.state import decode, encode
from slicemill.columns.pieces import Slice


def stored(value: Any) -> Any:
    """The value, encoded and decoded. Slices are new ones with the same rows, but are not written."""
    slices: list[Slice] = []

    def keep(slice_: Slice) -> int:
        slices.append(slice_)
        return len(slices) - 1

    encoded = encode(value, {Slice: keep})
    tree = json.loads(json.dumps(encoded.tree, allow_nan=False))
    again = [Slice(slice_.table) for slice_ in slices]
    return decode(tree, [pa.py_buffer(bytes(b)) for b in encoded.buffers()], again.__getitem__)

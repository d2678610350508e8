"""Codec of operator state: versioned JSON and buffers, without pickle.

    encoded = encode(value)                       # fast: copies only mutable data
    decode(encoded.tree, encoded.buffers())       # the same value again

The tree is human-readable JSON. Numbers, strings and lists stand for themselves. Every other value is an
object with one key for its type:

    {"$tuple": [1, 2.5]}   {"$map": {"a": 1}}   {"$dict": [[1, "one"]]}   {"$float": "7ff8000000000000"}
    {"$array": {"dtype": "<i8", "shape": [3], "buffer": 0}}               {"$table": 1}
    {"column": {"name": "price", "type": {"type": {...}}}}                a registered class, by value
    {"$ref": 4}                                                           entry 4 of "objects"

The tree has four parts. `classes` has the registered classes with their versions. `objects` has registered
objects that may be referenced several times, and deeply nested values, so that the depth is bounded also for
long linked structures. `value` is the value. `buffers` is the number of buffers. Identity is kept for
registered objects, arrays and tables, not for lists and dictionaries.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from slicemill.storage.codec.decoder import Decoder
from slicemill.storage.codec.encoder import Encoded, Encoder, External, Tree
from slicemill.storage.codec.registry import StorageError, register, registered_names, stored_as

__all__ = [
    "Encoded",
    "External",
    "StorageError",
    "decode",
    "encode",
    "register",
    "registered_names",
    "stored_as",
]

_NONE: External = {}


def encode(value: object, external: External = _NONE, *, copied: bool = True) -> Encoded:
    """Encode a value as JSON and buffers; StorageError for unregistered classes.

    Without copies, the buffers are the arrays themselves: write them before the arrays change.
    """
    with _no_collection():
        return Encoder(external, copied).whole(value)


def decode(
    tree: Mapping[str, Tree],
    buffers: Sequence[pa.Buffer],
    external: Callable[[Tree], object] | None = None,
) -> Any:
    """Decode a tree; tables are views, arrays are writable copies."""
    with _no_collection():
        return Decoder(tree, buffers, external).whole()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection, which would repeatedly traverse a large state."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

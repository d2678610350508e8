"""The codec of operator state: JSON and buffers, versioned, without pickles.

    encoded = encode(value)                       # fast: copies only what may still change
    decode(encoded.tree, encoded.buffers())       # the same value again

The tree is JSON that a person can read. Numbers, strings and lists stand for themselves; everything else is
an object with one key that says what it is:

    {"$tuple": [1, 2.5]}   {"$map": {"a": 1}}   {"$dict": [[1, "one"]]}   {"$float": "7ff8000000000000"}
    {"$array": {"dtype": "<i8", "shape": [3], "buffer": 0}}               {"$table": 1}
    {"column": {"name": "price", "type": {"type": {...}}}}                a registered class, by value
    {"$ref": 4}                                                           entry 4 of "objects"

The tree has four parts: `classes` names the registered classes in it with their versions; `objects` has the
registered objects that may be referred to more than once, and what lies deep inside something else (so that
depth is bounded, however long a linked structure is); `value` is the value; `buffers` counts the buffers.
Identity is kept for registered objects, arrays and tables, not for lists and dictionaries.
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
    """Return a value as JSON and buffers. StorageError if it has an object of an unregistered class.

    Without copies, the buffers are the arrays themselves: write them before anything changes these.
    """
    with _no_collection():
        return Encoder(external, copied).whole(value)


def decode(
    tree: Mapping[str, Tree],
    buffers: Sequence[pa.Buffer],
    external: Callable[[Tree], object] | None = None,
) -> Any:
    """The value of a tree. Tables lie over the buffers; arrays are copies, which may be written to."""
    with _no_collection():
        return Decoder(tree, buffers, external).whole()


@contextmanager
def _no_collection() -> Iterator[None]:
    """No search for garbage, which would look through all of a large state, over and over."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()

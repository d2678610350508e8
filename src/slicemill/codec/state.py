"""Encoding and decoding of operator state (format: `slicemill.codec`)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from slicemill.codec.decoder import Decoder
from slicemill.codec.encoder import Encoded, Encoder, External, Tree

_NONE: External = {}


def encode(value: object, external: External = _NONE, *, copied: bool = True) -> Encoded:
    """Encode a value as a JSON tree and buffers.

    Raise StorageError for an unregistered class. Without `copied`, the buffers share memory with the arrays;
    write them before the arrays change.
    """
    with _no_collection():
        return Encoder(external, copied).whole(value)


def decode(
    tree: Mapping[str, Tree],
    buffers: Sequence[pa.Buffer],
    external: Callable[[Tree], object] | None = None,
) -> Any:
    """Decode a JSON tree and buffers; tables are views, arrays are writable copies."""
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

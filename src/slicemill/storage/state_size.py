"""Estimates of the memory size of operator state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from sys import getsizeof
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.codec.registry import codec_of
from slicemill.columns.objects_by_key import ObjectsByKey
from slicemill.columns.pieces import Slice
from slicemill.storage.checkpoints import SliceFile

_SAMPLE = 64
_ARRAY = 112  # number of bytes of an array's header
_OBJECT = 200  # number of bytes of an entry of `ObjectsByKey`, without key and object


def state_bytes(states: Mapping[str, object]) -> int:
    """Estimate the size in bytes of the operator states of all graph nodes; long lists are sampled.

    State that checkpoints omit, because it can be recomputed, is not counted.
    """
    total = 0.0
    seen: dict[int, object] = {}  # visited values by id; references to values prevent the reuse of ids
    # Values to visit, with the number of values that each sampled value represents.
    left: list[tuple[Any, float]] = [(state, 1.0) for state in states.values()]
    while left:
        value, share = left.pop()
        if value is None or type(value) is bool:
            continue
        if type(value) in (int, float):
            total += share * getsizeof(value)
        elif id(value) not in seen:
            seen[id(value)] = value
            total += share * _own_bytes(value)
            left += [(part, share * more) for part, more in _parts(value)]
    return round(total)


def _own_bytes(value: Any) -> int:
    """Return the size of a value in bytes, without the size of the values that it contains."""
    if isinstance(value, (pa.Table, pa.Array, pa.ChunkedArray)):
        return int(value.nbytes)
    if isinstance(value, np.ndarray):
        # A view counts through its base array, which includes the spare capacity of growing accumulators.
        return _ARRAY if isinstance(value.base, np.ndarray) else int(value.nbytes) + _ARRAY
    if isinstance(value, Slice):
        return value.stored.bytes if isinstance(value.stored, SliceFile) else int(value.table.nbytes)
    if isinstance(value, ObjectsByKey):
        return _OBJECT * len(value)
    # Definitions of queries are small, so the values in them are not counted.
    own = getsizeof(value)
    return own + getsizeof(value.__dict__) if hasattr(value, "__dict__") else own


def _parts(value: Any) -> Iterator[tuple[Any, float]]:
    """Yield sampled elements of a value, each with the number of elements that it represents."""
    if isinstance(value, (str, bytes, Slice, pa.Table, pa.Array, pa.ChunkedArray)):
        return
    if isinstance(value, np.ndarray):
        if isinstance(value.base, np.ndarray):
            yield value.base, 1.0
        elif value.dtype == np.object_:
            yield from _sample_items(value.ravel().tolist())
    elif isinstance(value, ObjectsByKey):
        # The snapshot tables of objects are not counted, because they are in files or not encoded yet.
        more = max(1.0, len(value) / _SAMPLE)
        yield from ((part, more) for part in value.sample(_SAMPLE))
    elif isinstance(value, Mapping):
        yield from _sample_items(value.keys())
        yield from _sample_items(value.values())
    elif isinstance(value, Collection):
        yield from _sample_items(value)
    elif (codec := codec_of(type(value))) is not None and not codec.by_value:
        for owner in type(value).__mro__:
            for slot in owner.__dict__.get("__slots__", ()):
                if hasattr(value, slot):
                    yield getattr(value, slot), 1.0
        yield from ((part, 1.0) for part in getattr(value, "__dict__", {}).values())


def _sample_items(items: Collection[Any]) -> Iterator[tuple[Any, float]]:
    more = max(1.0, len(items) / _SAMPLE)
    return ((item, more) for item in islice(items, _SAMPLE))

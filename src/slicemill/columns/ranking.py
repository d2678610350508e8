"""ORDER BY over columns.

NULL is the smallest value and NaN the greatest, as everywhere in ESL.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.columns.keys import whole

Places = NDArray[np.int64]


def order_codes(column: pa.Array | pa.ChunkedArray, descending: bool) -> Places:
    """Return integers that sort like the values of a column."""
    array = whole(column)
    kind = array.type
    valid = np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    if pa.types.is_timestamp(kind) or pa.types.is_duration(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind) or pa.types.is_boolean(kind):
        array = array.cast(pa.int32())
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        values = pc.fill_null(array, 0).to_numpy(zero_copy_only=False)
        codes = np.unique(values, return_inverse=True)[1].astype(np.int64)
    else:
        encoded = pc.dictionary_encode(array, null_encoding="mask")
        values_ = encoded.dictionary.to_pylist()
        ranks = np.empty(len(values_), np.int64)
        ranks[sorted(range(len(values_)), key=values_.__getitem__)] = np.arange(len(values_))
        places = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
        codes = ranks[places] if len(ranks) else np.zeros(len(array), np.int64)
    codes = np.where(valid, codes + 1, 0)
    return -codes if descending else codes


def ordered_by(codes: Sequence[Places], last: Places) -> Places:
    """Return the positions of rows in order of the codes.

    `last` breaks ties.
    """
    return np.lexsort((last, *reversed(codes)))


class _Reversed:
    """Wrapper that reverses the order of a value."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Reversed) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Reversed) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def sort_key(values: Sequence[Any], descending: Sequence[bool]) -> tuple[Any, ...]:
    """Return a comparable sort key for the values of one row."""
    return tuple(
        _Reversed(_in_order(value)) if falls else _in_order(value)
        for value, falls in zip(values, descending, strict=True)
    )


def _in_order(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if value != value else (1, value)

"""Columns of decimals: Arrow's 128 bits, seen as integers where 64 bits hold them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.schema import Type
from slicemill.scalar.kernel import Fallback
from slicemill.scalar.vectors import Mask, arrow_type

NARROW = 18  # digits that always fit into 64 bits


def unscaled(array: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """The digits of each decimal as an integer, and where 64 bits do not hold them."""
    rows = len(array)
    buffer = array.buffers()[1]
    if buffer is None:
        return np.zeros(rows, np.int64), np.zeros(rows, np.bool_)
    words = np.frombuffer(buffer, np.int64, 2 * rows, 16 * array.offset).reshape(rows, 2)
    return words[:, 0], words[:, 1] != words[:, 0] >> 63


def from_unscaled(digits: NDArray[np.int64], type_: Type) -> pa.Array:
    words = np.empty((len(digits), 2), np.int64)
    words[:, 0] = digits
    words[:, 1] = digits >> 63
    return pa.Array.from_buffers(arrow_type(type_), len(digits), [None, pa.py_buffer(words)])


def exact(function: Callable[..., Any], result: Type) -> Callable[..., Any] | None:
    """Arrow's operation on decimals where its result has our type, so that nothing is rounded."""
    wanted = arrow_type(result)

    def compute(*operands: pa.Array | pa.Scalar) -> pa.Array | pa.Scalar:
        try:
            found = function(*operands)
        except pa.ArrowInvalid:
            raise Fallback from None
        if found.type != wanted:
            raise Fallback
        return found

    return compute

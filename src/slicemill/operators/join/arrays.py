"""Types of the vectors of compiled loops, for type checkers and for Numba.

Vectors of slices are memory-mapped files, so input vectors are declared read-only.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import types
from numpy.typing import NDArray

Times: TypeAlias = NDArray[np.int64]
Hashes: TypeAlias = NDArray[np.uint64]
Word: TypeAlias = NDArray[np.uint64]  # a mask, word by word
Words: TypeAlias = NDArray[np.uint64]  # masks as [row, word]
Places: TypeAlias = NDArray[np.int32]

times_in = types.Array(types.int64, 1, "C", readonly=True)
hashes_in = types.Array(types.uint64, 1, "C", readonly=True)
word_in = types.Array(types.uint64, 1, "C", readonly=True)
words_in = types.Array(types.uint64, 2, "C", readonly=True)
places_in = types.Array(types.int32, 1, "C", readonly=True)
times_out = types.Array(types.int64, 1, "C")
hashes_out = types.Array(types.uint64, 1, "C")
words_out = types.Array(types.uint64, 2, "C")
places_out = types.Array(types.int32, 1, "C")
flags_out = types.Array(types.boolean, 1, "C")

"""Arguments of kernels: a tuple whose parts have names keeps them in machine code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from slicemill.machine_code.kernel import kernel
from slicemill.machine_code.types import named_class, names_of, signature_of


class Pair(NamedTuple):
    left: NDArray[np.float64]
    count: int


@kernel
def scaled(pair: Pair, place: int) -> float:
    return float(pair.left[place] * pair.count)


def test_parts_with_names_are_read_by_them() -> None:
    pair = Pair(np.array([1.5, 2.0]), 3)
    signature = signature_of((pair, 1))
    assert named_class(signature[0]) is Pair
    assert names_of(signature) == names_of(signature_of((tuple(pair), 1)))
    scaled.compile(signature)  # type: ignore[attr-defined]
    assert scaled(pair, 0) == 4.5 and scaled(pair, 1) == 6.0


def test_other_tuples_have_no_class() -> None:
    ((plain,), (empty,)) = signature_of(((1, 2.0),)), signature_of(((),))
    assert named_class(plain) is None and named_class(empty) is None

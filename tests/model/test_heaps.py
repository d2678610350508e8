"""Two heaps against a sorted window, with equal values and many deleted values (C17)."""

from __future__ import annotations

import numpy as np
import numpy.rec
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models import numerics as kernels
from slicemill.kernels.kernel import inside_python

ENTRY = np.dtype([("value", "f8"), ("number", "i8")])


@settings(max_examples=30)
@given(
    values=st.lists(st.integers(0, 9), min_size=1, max_size=150),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    share=st.tuples(st.integers(0, 4), st.just(4)),
)
def test_the_heaps_return_the_element_at_a_rank(
    values: list[int], sizes: list[int], share: tuple[int, int]
) -> None:
    """The size of the window changes at times, as in windows of time."""
    lower, upper = (np.zeros(300, ENTRY).view(numpy.rec.recarray) for _ in range(2))
    kept = (0, 0, 0, 0)
    gone = 0

    def target(count: int) -> int:
        return (count - 1) * share[0] // share[1] + 1 if count else 0

    def heaps() -> tuple[object, ...]:
        return lower, 0, kept[0], kept[1], upper, 0, kept[2], kept[3]

    for number, value in enumerate(values, start=1):
        size = sizes[number * len(sizes) // (len(values) + 1)]
        while number - 1 - gone >= size:
            oldest = float(values[gone])
            with inside_python():
                kept = kernels.remove_oldest(*heaps(), oldest, gone + 1, target(number - 2 - gone))
            gone += 1
        with inside_python():
            kept = kernels.insert(*heaps(), float(value), number, gone + 1, target(number - gone))
        window = sorted(values[gone:number])
        assert kept[1] + kept[3] == len(window)
        assert -lower[0].value == window[target(len(window)) - 1]
        if kept[3]:
            assert upper[0].value == window[target(len(window))]
        assert kept[0] <= 2 * kept[1] + 34 and kept[2] <= 2 * kept[3] + 34

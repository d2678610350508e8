"""Deque, two stacks and ordered window against a recomputation, and rescans of the conditional rule (C17)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill_lab.model.reference.memory import (
    ConditionalMaximum,
    MonotoneDeque,
    OrderedWindow,
    TwoStackWindow,
)

VALUES = st.lists(st.integers(-5, 5), min_size=1, max_size=30)


@settings(max_examples=40)
@given(values=VALUES, size=st.integers(1, 6))
def test_all_structures_agree_with_the_window(values: list[int], size: int) -> None:
    conditional, deque, ordered = ConditionalMaximum(), MonotoneDeque(), OrderedWindow()
    texts = TwoStackWindow(lambda a, b: a + b, "")  # not commutative
    for place, value in enumerate(values):
        window = values[max(0, place - size + 1) : place + 1]
        leaving = place >= size
        if leaving:
            for structure in (deque, ordered, texts):
                structure.expire()
        for structure, given_ in ((deque, value), (ordered, value), (texts, str(value))):
            structure.push(given_)
        assert conditional.slide(value, leaving) == deque.maximum == max(window)
        assert [ordered.rank(k) for k in range(len(ordered))] == sorted(window)
        assert texts.value == "".join(map(str, window))
        assert len(deque) <= len(window)
    assert texts.combined <= 4 * len(values)


def rescans(values: list[int], size: int) -> int:
    maximum = ConditionalMaximum()
    for place, value in enumerate(values):
        maximum.slide(value, place >= size)
    return maximum.rescans


def test_the_number_of_rescans_depends_on_the_data() -> None:
    assert rescans(list(range(100)), 10) == 0
    assert rescans(list(range(100, 0, -1)), 10) == 90
    assert rescans([7] * 100, 10) == 0

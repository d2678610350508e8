"""From old cuts to new ones (S23)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slicemill.operators.join.slices.coverage import MergeSlices, SplitSlice, changes


def cuts(draw: st.DrawFn) -> list[tuple[float, float]]:
    inner = draw(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 8)), max_size=5))
    left, right = sorted(a for a, _ in inner), sorted(b for _, b in inner)
    return [*dict.fromkeys(zip(left, right, strict=True)), (9, 9)]


@given(st.composite(cuts)(), st.composite(cuts)())
def test_the_steps_lead_from_any_cuts_to_any_others(
    old: list[tuple[float, float]], new: list[tuple[float, float]]
) -> None:
    now = list(old)
    for step in changes(old, new):
        match step:
            case MergeSlices(number):
                del now[number]
            case SplitSlice(number, at):
                starts = [(0.0, 0.0), *now]
                assert all(a <= cut <= b for a, cut, b in zip(starts[number], at, now[number], strict=True))
                now.insert(number, at)
    assert now == new

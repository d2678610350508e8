"""Masks of slices and the AND that routes results (S46, S49, P15)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.errors import SlicemillError
from slicemill.operators.join.slices.workload import (
    Member,
    MemberSide,
    queries_reaching,
    slice_masks,
    spans,
    targets,
)


def test_the_golden_masks_of_three_queries() -> None:
    # Orders by window: A: q2, q3, q1; B: q1, q2, q3; C: q3, q1, q2.
    members = tuple(
        Member(query, tuple(MemberSide(window) for window in windows))
        for query, windows in {"q1": (3, 1, 2), "q2": (1, 2, 3), "q3": (2, 3, 1)}.items()
    )
    a, b, c = (slice_masks(members, side) for side in range(3))
    assert a == (0b111, 0b101, 0b001)
    assert b == (0b111, 0b110, 0b100)
    assert c == (0b111, 0b011, 0b010)
    assert targets([0b111, b[1], c[2]]) == 0b010


@given(
    windows=st.lists(st.tuples(*[st.integers(1, 6)] * 3), min_size=1, max_size=5),
    ages=st.tuples(*[st.integers(0, 6)] * 3),
    data=st.data(),
)
@settings(max_examples=60)
def test_masks_of_any_cuts_name_the_queries_whose_windows_hold_all_members(
    windows: list[tuple[int, int, int]], ages: tuple[int, int, int], data: st.DataObject
) -> None:
    members = tuple(Member(f"q{i}", tuple(map(MemberSide, wanted))) for i, wanted in enumerate(windows))
    found = []
    for side, age in enumerate(ages):
        longest = max(wanted[side] for wanted in windows)
        cuts = data.draw(st.sets(st.integers(1, longest)))
        pieces = spans(members, side, sorted(cuts | {longest}))
        here = [piece for piece in pieces if piece.start <= age < piece.end]
        found.append(here[0].queries_at(age) if here else 0)
        for piece in pieces:
            assert piece.mask == queries_reaching(members, side, piece.start)
    expected = [all(age < w for age, w in zip(ages, wanted, strict=True)) for wanted in windows]
    assert targets(found) == sum(1 << bit for bit, yes in enumerate(expected) if yes)


def test_ends_must_ascend() -> None:
    with pytest.raises(SlicemillError, match="ascend"):
        spans((Member("q", (MemberSide(3), MemberSide(3))),), 0, (3, 2))


@pytest.mark.parametrize(
    ("side", "message"),
    [
        (lambda: MemberSide(0), "longer than 0"),
        (lambda: MemberSide(1, "x", 1.5), "between 0 and 1"),
        (lambda: MemberSide(1, None, 0.5), "every tuple passes"),
    ],
)
def test_a_side_that_makes_no_sense_is_refused(side: object, message: str) -> None:
    assert callable(side)
    with pytest.raises(SlicemillError, match=message):
        side()

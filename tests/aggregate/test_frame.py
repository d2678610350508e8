"""Window frames: positions, slots, and the oldest row of a window (M32, M34)."""

from __future__ import annotations

import pytest

from slicemill.aggregates.frames import WindowFrame
from slicemill.errors import SlicemillError


def test_rows_n_preceding_is_a_window_of_n_plus_1_rows() -> None:
    frame = WindowFrame("ROWS", 49, slide=10)
    assert frame.length == 50
    assert frame.lower(99) == 50


def test_range_is_inclusive_without_slide_and_ends_with_the_slot_with_slide() -> None:
    assert WindowFrame("RANGE", 6).lower(5) == -1
    #  0 . . . 4 . . . 8
    #      [2      5  )     the slot of 5 ends at 8
    assert WindowFrame("RANGE", 6, slide=4).lower(5) == 2


def test_slots_are_aligned_to_time_0_also_for_negative_times() -> None:
    frame = WindowFrame("RANGE", 6, slide=4)
    assert [frame.slot_end(ts) for ts in (-5, -4, -1, 0, 3, 4)] == [-4, 0, 0, 4, 4, 8]


def test_x7_a_slide_of_several_panes_is_preserved_in_panes_of_the_gcd() -> None:
    rows = WindowFrame("ROWS", 49, slide=20).in_panes(10)
    assert (rows.length, rows.slide) == (5, 2)
    time = WindowFrame("RANGE", 50, slide=20).in_panes(10)
    assert (time.length, time.slide) == (5, 2)


def test_only_time_slides_and_active_expiration_wait_for_the_watermark() -> None:
    assert not WindowFrame("RANGE", 5).waits_for_time
    assert not WindowFrame("ROWS", 5, slide=3).waits_for_time
    assert WindowFrame("RANGE", 5, slide=3).waits_for_time
    assert WindowFrame("RANGE", 5, active=True).waits_for_time


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: WindowFrame("ROWS", -1), "cannot be negative"),
        (lambda: WindowFrame("ROWS", 1, slide=0), "longer than 0"),
        (lambda: WindowFrame("RANGE", 0, slide=5), "would be empty"),
        (lambda: WindowFrame("ROWS", 5, active=True), "ACTIVE EXPIRATION needs RANGE"),
        (lambda: WindowFrame("RANGE", None, active=True), "finite extent"),
        (lambda: WindowFrame("RANGE", 5, slide=5, active=True), "replaces SLIDE"),
    ],
)
def test_an_empty_or_contradictory_frame_is_rejected(make, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        make()

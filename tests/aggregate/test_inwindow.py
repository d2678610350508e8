"""The window content that an aggregate sees (M32, M33)."""

from __future__ import annotations

from slicemill.aggregates.frames import Inwindow


def filled(*values: int) -> Inwindow:
    window = Inwindow()
    for position, value in enumerate(values):
        window.insert(position, (value,))
    return window


def test_an_empty_window_has_no_oldest_tuple() -> None:
    window = Inwindow()
    assert window.oldest() is None
    assert window.oldest_position() is None
    assert len(window) == 0


def test_tuples_are_iterated_in_order_of_arrival() -> None:
    assert list(filled(5, 3, 4)) == [(5,), (3,), (4,)]


def test_positions_survive_deletes_of_other_tuples() -> None:
    window = filled(5, 3, 4)
    window.delete(lambda args: args == (3,))
    window.remove_oldest(0)
    assert window.oldest() == (4,)
    assert window.oldest_position() == 2


def test_removal_of_a_deleted_tuple_changes_nothing() -> None:
    window = filled(5, 3)
    window.delete(lambda args: args == (5,))
    window.remove_oldest(0)
    assert list(window) == [(3,)]

from __future__ import annotations

import pytest

from slicemill_lab.spread import fewer_seeds, lower, lowest, ordered, seeds


def test_five_seeds_follow_the_first() -> None:
    assert list(seeds(7)) == [7, 8, 9, 10, 11]


def test_the_number_of_seeds_can_be_reduced_temporarily() -> None:
    with fewer_seeds(2):
        assert list(seeds(7)) == [7, 8]
    assert len(seeds(7)) == 5


def test_a_lower_value_is_compared_by_seed_and_its_spread_is_noted() -> None:
    claim = lower("ours below theirs", [1, 3], [2, 4], "why")
    assert (claim.what, claim.expected, claim.holds) == ("ours below theirs by", "> 0", True)
    assert claim.measured == pytest.approx(0.375)
    assert claim.note == "why; 25% to 50% over 2 seeds"
    assert not lower("the same", [2.0], [2.0]).holds


def test_an_order_notes_the_number_of_seeds_in_which_it_holds() -> None:
    claim = ordered("order", {"a": [1, 5], "b": [3, 4]}, note="why")
    assert (claim.holds, claim.note) == (True, "why; the same order in 1 of 2 seeds")


def test_the_lowest_is_named() -> None:
    claim = lowest("who", "a", {"a": [1, 5], "b": [3, 4]})
    assert (claim.measured, claim.holds, claim.note) == ("a", True, "lowest in 1 of 2 seeds")
    assert not lowest("who", "b", {"a": [1, 2], "b": [3, 4]}).holds

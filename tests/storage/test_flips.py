"""Bit flips in every kind of file of a home directory; `slow_flips.py` tries two thousand."""

from __future__ import annotations

from pathlib import Path

from storage.flips import expected_results, flips, make_home, outcome_of_flip


def test_a_bit_flip_causes_neither_wrong_rows_nor_an_unexplained_error(tmp_path: Path) -> None:
    make_home(tmp_path / "home")
    expected = expected_results(tmp_path / "home", tmp_path)
    assert all(expected.values()), "every query has results"
    kinds: set[str] = set()
    for flip in flips(tmp_path / "home", 13, seed=7):
        outcome = outcome_of_flip(tmp_path / "home", flip, tmp_path, expected)
        assert outcome.what not in ("wrong", "crashed"), (flip, outcome)
        assert outcome.found or outcome.what in ("refused", "harmless"), (flip, outcome)
        kinds.add(flip.kind)
    assert len(kinds) == 13

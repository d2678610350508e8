"""Stored rows in pieces: no required row is lost, and the number of pieces stays small."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from slicemill.columns.pieces import Slice, drop_first_rows, keep_needed


def numbers(pieces: list[Slice]) -> list[int]:
    return [number for piece in pieces for number in piece.table.column("n").to_pylist()]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5)), max_size=40))
def test_all_rows_from_the_first_required_row_on_stay(runs: list[tuple[int, int]]) -> None:
    pieces: list[Slice] = []
    made = needed_from = passed = 0
    for new, leaving in runs:
        made, before = made + new, made
        needed_from = min(made, needed_from + leaving)
        held = numbers(pieces)
        first = needed_from - (held[0] if held else before)
        pieces, passed = drop_first_rows(pieces, pa.table({"n": np.arange(before, made)}), max(first, 0))
        assert numbers(pieces)[passed:] == list(range(needed_from, made))
        assert not pieces or passed < len(pieces[0].table)
        assert all(len(piece.table) for piece in pieces) and len(pieces) < 12


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2**32)), max_size=30), st.booleans())
def test_required_rows_stay_in_order(runs: list[tuple[int, int]], exactly: bool) -> None:
    pieces: list[Slice] = []
    wanted: list[int] = []
    made = 0
    for new, seed in runs:
        rng = np.random.default_rng(seed)
        held = [*numbers(pieces), *range(made, made + new)]
        wanted = [n for n in [*wanted, *range(made, made + new)] if rng.random() < 0.7]
        needed = np.isin(held, wanted)
        pieces = keep_needed(pieces, pa.table({"n": np.arange(made, made + new)}), needed, exactly)
        made += new
        found = numbers(pieces)
        assert (found if exactly else [n for n in found if n in set(wanted)]) == wanted
        assert found == sorted(found) and len(pieces) < 12

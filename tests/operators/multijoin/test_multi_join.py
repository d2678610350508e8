"""Joins of three to five streams with one state per stream: the rows of the reference, in its order."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.multijoin.running import (
    Event,
    arrivals,
    as_multi,
    as_tree,
    by_rows,
    queries,
    results,
    runs_of,
)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(queries(), min_size=1, max_size=3),
    arrivals(),
    st.lists(st.integers(0, 60), max_size=2),
)
def test_a_set_of_joins_gives_each_what_the_reference_gives_it(
    texts: list[str], arriving: list[Event], cuts: list[int]
) -> None:
    named = {f"q{number}": text for number, text in enumerate(texts)}
    runs = runs_of(arriving, cuts)
    found, expected = results(as_multi, named, runs), results(by_rows, named, runs)
    for name in named:
        assert [row for _, _, row in found[name]] == [row for _, _, row in expected[name]]
        positions = [(ts, seq) for ts, seq, _ in found[name]]
        assert positions == sorted(positions)


@settings(max_examples=40, deadline=None)
@given(queries(most=5), arrivals(), st.lists(st.integers(0, 60), max_size=2), st.booleans())
def test_rows_and_their_numbers_are_those_of_the_tree(
    text: str, arriving: list[Event], cuts: list[int], restarted: bool
) -> None:
    runs = runs_of(arriving, cuts)
    expected = results(as_tree, {"q": text}, runs)
    with tempfile.TemporaryDirectory() as folder:
        assert results(as_multi, {"q": text}, runs, Path(folder) if restarted else None) == expected

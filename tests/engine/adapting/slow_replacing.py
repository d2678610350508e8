"""More of what `test_replacing` tries: units get other cells while mills stop, crash and lose workers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapting.test_replacing import ACTIONS, run


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.lists(ACTIONS, min_size=5, max_size=40))
def test_results_are_those_of_one_cell(seed: int, cells: int, steps: list[str]) -> None:
    assert run(seed, cells, steps, disturbed=True) == run(seed, 1, steps, disturbed=False)

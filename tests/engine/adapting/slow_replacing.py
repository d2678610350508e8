"""More of what `test_replacing` tries: tasks get other subtasks while mills stop, crash and lose workers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.adapting.test_replacing import ACTIONS, run


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 4), st.lists(ACTIONS, min_size=5, max_size=40))
def test_results_are_those_of_one_subtask(seed: int, subtasks: int, steps: list[str]) -> None:
    assert run(seed, subtasks, steps, disturbed=True) == run(seed, 1, steps, disturbed=False)

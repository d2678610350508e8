"""Queries of every kind over files, and many sequences: where queries start is invisible in their results."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.changing.come_and_go import Step
from engine.changing.positions import OF_FILES, come_late, play, sequences
from engine.changing.second_readings import kill_at_each_step
from recovery.dying import AFTER, BEFORE


@pytest.mark.parametrize("kind", OF_FILES)
def test_a_query_of_each_kind_that_comes_late_gives_what_one_gives_from_the_start(kind: str) -> None:
    come_late(kind)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=sequences(), seed=st.integers(0, 9), subtasks=st.sampled_from([1, 3]))
def test_queries_created_at_any_moment_give_what_those_give_from_the_start(
    steps: list[Step], seed: int, subtasks: int
) -> None:
    play(steps, seed, subtasks)


@pytest.mark.parametrize("when", [BEFORE, AFTER])
def test_a_kill_at_any_file_operation_of_a_second_reading_changes_no_results(
    tmp_path: Path, when: str
) -> None:
    assert kill_at_each_step(tmp_path, (when,), journal_only=False) > 100

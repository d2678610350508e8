"""Units set at a time, without Spark: all cases of the corpus, cut into runs anywhere (`make test-slow`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.test_program import BEYOND_TASKS, check_checkpoints, check_runs
from support.corpus import Case, parameters


@pytest.mark.parametrize("case", parameters(BEYOND_TASKS))
def test_runs_cut_anywhere_and_any_number_of_subtasks_give_the_rows_of_the_case_in_order(case: Case) -> None:
    check_runs(case)


@pytest.mark.parametrize("case", parameters(BEYOND_TASKS))
def test_tasks_that_go_on_from_checkpoints_give_the_same_rows_to_the_bit(case: Case, tmp_path: Path) -> None:
    check_checkpoints(case, tmp_path)

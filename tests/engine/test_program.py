"""Units set at a time, without Spark: the corpus, cut into runs anywhere, gives the same rows.

`make test` has a case for each operator and placement; `slow_program.py` has all cases.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.corpus import Case, check_rows, prepare
from support.placed_cases import placed_cases
from support.tasks import run_tasks

# Late tuples are put aside when a stream is read, before the log; a query over tables alone is no task.
BEYOND_TASKS = frozenset({"late", "adhoc", "changes"})

PLACED = {case.name: case for case, _ in placed_cases(BEYOND_TASKS).values()}
PARAMETERS = [pytest.param(case, id=name) for name, case in PLACED.items()]


@pytest.mark.slow_cpu
@pytest.mark.parametrize("case", PARAMETERS)
def test_runs_cut_anywhere_and_any_number_of_subtasks_give_the_rows_of_the_case_in_order(case: Case) -> None:
    check_runs(case)


@pytest.mark.parametrize("case", PARAMETERS)
def test_tasks_that_go_on_from_checkpoints_give_the_same_rows_to_the_bit(case: Case, tmp_path: Path) -> None:
    check_checkpoints(case, tmp_path)


def check_runs(case: Case) -> None:
    """Cut a case into runs at several places, in several numbers of subtasks, and compare its rows."""
    runnable = prepare(case)
    found = []
    for seed, subtasks in ((1, 1), (2, 2), (3, 5), (4, 1)):
        results = run_tasks(runnable.catalog, runnable.events, runnable.tables, seed, subtasks)
        for query, expected in runnable.expected.items():
            check_rows(expected, results[query.lower()], f"{query}, seed {seed}, {subtasks} subtasks")
        # The order is one, also where the case does not ask for one; NaN is no reason for another.
        found.append(repr(results))
    assert len(set(found)) == 1


def check_checkpoints(case: Case, folder: Path) -> None:
    """Compare tasks that are restored from checkpoints between runs with tasks that are not."""
    runnable = prepare(case)
    parts = (runnable.catalog, runnable.events, runnable.tables)
    for seed, subtasks in ((5, 1), (6, 3)):
        results = run_tasks(*parts, seed, subtasks, folder)
        assert repr(results) == repr(run_tasks(*parts, seed, subtasks))

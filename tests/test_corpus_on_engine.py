"""The corpus on the engine, with workers in this process: subtasks, crashes and lost workers change no row.

`make test` runs each case with one seed; `slow_corpus.py` has other seeds.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from support.corpus import Case, check_rows, parameters, prepare
from support.engine import Clock, fed_mill, inline_pool, run_case


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_with_any_runs_subtasks_and_crashes(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path, seed=len(case.name))


def check(case: Case, home: Path, *, seed: int) -> None:
    """Run a case with runs, crashes and lost workers drawn from a seed, and compare its rows."""
    runnable = prepare(case)
    pool = inline_pool()

    def open_mill(clock: Clock, subtasks: int) -> Mill:
        return fed_mill(home, clock, pool, subtasks)

    def disturb(chooser: random.Random) -> None:
        if chooser.random() < 0.03:
            pool.lose(chooser.randrange(2))

    results = run_case(runnable, open_mill, seed, disturb=disturb)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)

"""The corpus on the engine, with workers in this process: cells, crashes and lost workers are not seen."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from slicemill.engine.mill import Mill
from support.corpus import Case, check_rows, parameters, prepare
from support.engine import Clock, fed_mill, inline_pool, run_case


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("seed", range(2))
def test_a_case_gives_its_rows_whatever_the_runs_cells_and_crashes(
    case: Case, seed: int, tmp_path: Path
) -> None:
    runnable = prepare(case)
    pool = inline_pool()

    def open_mill(clock: Clock, cells: int) -> Mill:
        return fed_mill(tmp_path, clock, pool, cells)

    def disturb(chooser: random.Random) -> None:
        if chooser.random() < 0.03:
            pool.lose(chooser.randrange(2))

    results = run_case(runnable, open_mill, seed * 1_000 + len(case.name), disturb=disturb)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)

"""The corpus on Spark: units run on workers that stay, and as ordinary jobs, between any two tuples."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slicemill.engine.mill import Mill
from slicemill.engine.workers.sharing import Execution
from support.corpus import Case, check_rows, parameters, prepare
from support.engine import Clock, run_case


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_whatever_the_runs_cells_and_restarts(
    case: Case, spark: SparkSession, tmp_path: Path
) -> None:
    check(case, spark, tmp_path, "workers", seed=len(case.name))


@pytest.mark.parametrize("case", parameters()[::12])
def test_a_case_gives_the_same_rows_as_ordinary_jobs(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, spark, tmp_path, "jobs", seed=len(case.name))


def check(case: Case, spark: SparkSession, home: Path, execution: Execution, *, seed: int) -> None:
    runnable = prepare(case)

    def open_mill(clock: Clock, cells: int) -> Mill:
        return Mill(spark, home, cells=cells, clock=clock, execution=execution, read_sources=False)

    results = run_case(runnable, open_mill, seed)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)

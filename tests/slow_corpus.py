"""The whole corpus on Spark: as ordinary jobs, and on workers with more borders of runs than `make test` has.

The corpus from CSV files, without Spark: `make test` has it from JSON files.

Run by `make test-slow`.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.corpus import Case, parameters
from test_corpus_on_files import check_from_files
from test_corpus_on_spark import check


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_as_ordinary_jobs(case: Case, spark: SparkSession, tmp_path: Path) -> None:
    check(case, spark, tmp_path, "jobs", seed=1_000 + len(case.name))


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("seed", range(2, 4))
def test_a_case_gives_its_rows_at_other_borders(
    case: Case, seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    check(case, spark, tmp_path, "workers", seed=seed * 1_000 + len(case.name))


@pytest.mark.parametrize("case", parameters())
def test_a_case_gives_its_rows_when_they_come_from_csv_files(case: Case, tmp_path: Path) -> None:
    check_from_files(case, "csv", tmp_path)

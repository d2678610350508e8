"""The whole corpus with every seed, on Spark and on workers in this process, and from CSV and JSON files.

`make test` has one seed in this process, and a case for each operator and placement on Spark and from JSON
files. `make test-slow` runs this module.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import test_corpus_on_engine
import test_corpus_on_spark
from support.corpus import Case, parameters
from test_corpus_on_files import check_from_files

SEEDS = range(4)


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("seed", SEEDS)
def test_a_case_gives_its_rows_on_workers_of_this_process(case: Case, seed: int, tmp_path: Path) -> None:
    test_corpus_on_engine.check(case, tmp_path, seed=seed * 1_000 + len(case.name))


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("seed", SEEDS)
def test_a_case_gives_its_rows_on_spark(case: Case, seed: int, spark: SparkSession, tmp_path: Path) -> None:
    test_corpus_on_spark.check(case, spark, tmp_path, "workers", seed=seed * 1_000 + len(case.name))


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("seed", [0, 1])
def test_a_case_gives_its_rows_as_ordinary_spark_jobs(
    case: Case, seed: int, spark: SparkSession, tmp_path: Path
) -> None:
    test_corpus_on_spark.check(case, spark, tmp_path, "jobs", seed=seed * 1_000 + len(case.name))


@pytest.mark.parametrize("case", parameters())
@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_case_gives_its_rows_from_files(case: Case, form: str, tmp_path: Path) -> None:
    check_from_files(case, form, tmp_path)

"""Cases of the corpus on Spark, one for each operator and placement; `slow_corpus.py` runs all cases.

Tasks run on long-running workers and as ordinary Spark jobs, between any two tuples.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slicemill.api.mill import Mill
from slicemill.plan.placement import AUTO, PlacementKind
from slicemill.runtime.workers.sharing import Execution
from support.corpus import Case, check_rows, prepare
from support.engine import Clock, run_case
from support.placed_cases import SUBTASKS, placed_cases

PLACED = placed_cases()
PARAMETERS = [
    pytest.param(case, placement, id=f"{case.name}-{placement}")
    for case, placement in {
        (case.name, placement): (case, placement) for case, placement in PLACED.values()
    }.values()
]


@pytest.mark.slow_cpu
@pytest.mark.parametrize(("case", "placement"), PARAMETERS)
def test_a_case_gives_its_rows_in_a_placement(
    case: Case, placement: str, spark: SparkSession, tmp_path: Path
) -> None:
    check(case, spark, tmp_path, "workers", seed=len(case.name), placement=placement, subtasks=SUBTASKS)


@pytest.mark.parametrize(("case", "placement"), PARAMETERS[::6])
def test_a_case_gives_its_rows_as_ordinary_spark_jobs(
    case: Case, placement: str, spark: SparkSession, tmp_path: Path
) -> None:
    check(case, spark, tmp_path, "jobs", seed=len(case.name), placement=placement, subtasks=SUBTASKS)


def test_the_cases_have_every_placement_and_most_operators() -> None:
    assert {kind for _, kind in PLACED} == set(PlacementKind)
    assert (len({operator for operator, _ in PLACED}) >= 30, len(PARAMETERS) >= 55) == (True, True)


def check(
    case: Case,
    spark: SparkSession,
    home: Path,
    execution: Execution,
    *,
    seed: int,
    placement: str = AUTO,
    subtasks: int | None = None,
) -> None:
    """Run a case and compare its rows. Each start draws its number of subtasks unless `subtasks` is given."""
    runnable = prepare(case)

    def open_mill(clock: Clock, chosen: int) -> Mill:
        return Mill(
            spark,
            home,
            subtasks=subtasks or chosen,
            placement=placement,
            clock=clock,
            execution=execution,
            read_sources=False,
        )

    results = run_case(runnable, open_mill, seed)
    for query, expected in runnable.expected.items():
        check_rows(expected, results[query.lower()], query)

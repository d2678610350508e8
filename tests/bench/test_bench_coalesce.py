"""Parts of the coalescing benchmark on a few rows: Spark and slicemill against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from slicemill.operators.temporal.rows import TemporalQuery
from slicemill.types import Timed
from slicemill_lab.bench import coalesce
from slicemill_lab.bench.coalesce import (
    LEAST_US,
    RANGE_US,
    SLIDE_US,
    CoalesceBench,
    CoalesceSizes,
    ExpectedRuns,
    PeriodEvents,
)
from slicemill_lab.bench.rivals.coalesce_sql import FORMULATIONS
from slicemill_oracle.operators.coalesce import CoalesceOperator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coalesce, "KEYS", 3)
    monkeypatch.setattr(coalesce, "STEP_US", 200_000)


def test_expected_runs_equal_those_of_the_reference_engine() -> None:
    events = PeriodEvents.random(800)
    reference = CoalesceOperator(
        TemporalQuery(lambda r: r[1:], lambda r: r[:1], lambda r: r[:1], RANGE_US, SLIDE_US)
    )
    lengths = []
    for ts, k, v in zip(events.ts.tolist(), events.k.tolist(), events.v.tolist(), strict=True):
        periods = [made.row[-1] for made in reference.process(0, Timed(ts, (k, v)))]
        lengths += [end - begin for begin, end in periods]
    wanted = [length for length in lengths if length >= LEAST_US]
    assert events.expected() == ExpectedRuns(len(wanted), sum(wanted))
    assert len(wanted) > 50
    assert len(np.unique(events.k)) == 3


def test_both_systems_give_the_runs_of_numpy(tmp_path: Path, spark: SparkSession) -> None:
    bench = CoalesceBench(spark, tmp_path, CoalesceSizes(200, 3, 2))
    assert bench.mill(3).wrong == 0
    for formulation in FORMULATIONS:
        assert bench.rival_checked(formulation, 3).wrong == 0
        assert bench.rival(formulation, 2).rows_per_cpu_s > 0

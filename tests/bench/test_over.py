"""Parts of the benchmark of moving averages, on a few rows: both systems give the averages of NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from slicemill_lab.bench.over import OverBench, OverEvents, OverSizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = OverSizes(rows_per_file=200, files=2, files_of_one_partition=2, files_per_batch=1)


@pytest.mark.parametrize("partitioned", [True, False])
def test_both_systems_give_the_averages_of_numpy(
    tmp_path: Path, spark: SparkSession, partitioned: bool
) -> None:
    bench = OverBench(spark, tmp_path, FEW)
    mill, rival = bench.mill(5_000, partitioned, 2), bench.rival(5_000, partitioned, 2)
    assert mill.rows == rival.rows == 400
    for run in (mill, bench.rival_checked(5_000, partitioned)):
        assert run.wrong_rows == 0 and run.relative_error < 1e-12
        assert run.usage.wall_s > 0


def test_the_expected_sum_equals_that_of_a_plain_loop() -> None:
    events = OverEvents.random(300)
    events = OverEvents(events.ts, events.k % 3, events.v)
    for partitioned in (True, False):
        total = 0.0
        for row in range(300):
            near = (events.ts[: row + 1] >= events.ts[row] - 2_000) & (
                (events.k[: row + 1] == events.k[row]) | (not partitioned)
            )
            total += float(np.mean(events.v[: row + 1][near]))
        assert events.sum_of_averages(2_000, partitioned) == pytest.approx(total)

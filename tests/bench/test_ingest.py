"""The parts of the ingest benchmark, on a few rows: both sides count what a batch query counts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slicemill.bench.bids import many_conditions
from slicemill.bench.ingest import IngestBench, Sizes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW = Sizes(
    rows_per_file=500,
    files_per_batch=2,
    warm_files=1,
    warm_files_for_many=1,
    files_for_one=3,
    files_for_many=3,
    rounds=1,
    small_rows=20,
    small_files=6,
    every_s=0.05,
)


def test_both_sides_count_the_rows_of_a_batch_query(tmp_path: Path, spark: SparkSession) -> None:
    compared = IngestBench(spark, tmp_path, FEW).compare(many_conditions()[8:11], 3, 1)
    assert compared["rows"] > 1_400
    assert compared["rows too many or missing"] == 0
    assert compared["slicemill"]["cpu_s"] > 0 and compared["spark"]["cpu_s"] > 0
    stages = compared["where our time goes, s, last round"]
    assert stages["run: kernels"]["times"] > 0 and stages["commit"]["s"] > 0


def test_latencies_are_measured_on_both_sides(tmp_path: Path, spark: SparkSession) -> None:
    latency = IngestBench(spark, tmp_path, FEW).latencies()
    assert (
        0 < latency["p50 batch, native count, ms"] <= latency["p50 from arrival to result, native count, ms"]
    )
    assert latency["p50 from arrival to result, slicemill, ms"] > 0

"""The ways to partial results that are compared make the same number of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slicemill.bench.partial_ways import by_catalyst, by_tasks
from slicemill.bench.partials import KEYS, Sizes, write_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Three seconds of events, in two batches.
FEW = Sizes(rows_per_file=15_000, files=2, files_per_batch=1, forms=("parquet",), rounds=1)


def test_ways_agree(tmp_path: Path, spark: SparkSession) -> None:
    case = write_case(tmp_path / "case", "parquet", True, FEW)
    entries = [way(spark, case.events, tmp_path / way.__name__) for way in (by_catalyst, by_tasks)]
    # The second second is in both files: most of its keys have two entries.
    assert entries[0] == entries[1]
    assert 3.8 * KEYS < entries[0] <= 4 * KEYS

"""Run of one query over a stream of Parquet files, from the files to results in a log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill_lab.bench.inputs.bids import Feed
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.bench.measuring.waiting import wait_for
from slicemill_lab.bench.rivals.spark import POLL_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_query(
    spark: SparkSession,
    folder: Path,
    stream: str,
    query: str,
    paths: Sequence[Path],
    files_per_batch: int,
    results: tuple[int, int],
) -> tuple[Usage, pa.Table]:
    """Run a query. The first file starts it, the others are measured. `results` are the counts after both.

    `stream` declares the stream that the query reads, without its source.
    """
    feed = Feed(folder / "in")
    source = f"path '{feed.folder}', maxFilesPerTrigger {files_per_batch}"
    with Mill(spark, folder / "home", poll_ms=POLL_MS) as mill:
        mill.execute(f"{stream} USING parquet OPTIONS ({source})")
        mill.execute(f"CREATE QUERY measured AS {query}")
        mill.start()
        feed.arrive(paths[:1])
        wait_for(mill, "measured", results[0])
        with measured() as usage:
            feed.arrive(paths[1:])
            wait_for(mill, "measured", results[1])
        return usage, mill.queries["measured"].to_arrow()

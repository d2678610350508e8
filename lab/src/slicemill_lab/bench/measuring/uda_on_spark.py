"""End-to-end run of a user-defined aggregate: Parquet files through a mill on Spark to a log."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slicemill.api.mill import Mill
from slicemill.runtime.spark_session import local_session
from slicemill_lab.bench.inputs.bids import Feed
from slicemill_lab.bench.measuring.process_tree import Usage, measured
from slicemill_lab.bench.measuring.waiting import wait_for
from slicemill_lab.bench.over import SCHEMA, OverEvents
from slicemill_lab.bench.rivals.spark import POLL_MS

_ROWS, _FILES_PER_BATCH = 100_000, 5


@dataclass(frozen=True, slots=True)
class Streamed:
    """Input keys and values in order, all results, and the number of measured rows after a warm-up."""

    k: NDArray[np.int64]
    v: NDArray[np.float64]
    results: NDArray[np.float64]
    rows: int
    usage: Usage

    def figures(self) -> dict[str, Any]:
        return self.usage.figures(self.rows)


def end_to_end(esl: str, call: str, files: int) -> Streamed:
    """Return the second of two runs. The first file of a run starts the query, the others are measured."""
    events = OverEvents.random(_ROWS * (files + 1))
    with tempfile.TemporaryDirectory(prefix="slicemill-bench-") as name:
        folder = Path(name)
        paths = events.write(folder / "events", _ROWS)
        with local_session() as spark:
            for count in (2, files + 1):
                feed = Feed(folder / f"in-{count}")
                source = f"path '{feed.folder}', maxFilesPerTrigger {_FILES_PER_BATCH}"
                with Mill(spark, folder / f"home-{count}", poll_ms=POLL_MS) as mill:
                    mill.execute(
                        f"CREATE STREAM event ({SCHEMA}) ORDER BY ts USING parquet OPTIONS ({source}); {esl}"
                        f"CREATE QUERY means AS SELECT k, {call} AS mean FROM event;"
                    )
                    mill.start()
                    feed.arrive(paths[:1])
                    wait_for(mill, "means", _ROWS)
                    with measured() as usage:
                        feed.arrive(paths[1:count])
                        wait_for(mill, "means", _ROWS * count)
                    results = mill.queries["means"].to_arrow().column("mean").to_numpy()
    return Streamed(events.k, events.v, results, _ROWS * files, usage)

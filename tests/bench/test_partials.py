"""Both ways of the benchmark run, in the phases that they are told to, and come to the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slicemill.bench.events import write_events
from slicemill.bench.partials import CASES, run_way

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_ways_agree(tmp_path: Path, spark: SparkSession) -> None:
    write_events(tmp_path / "events", 2, 15_000)
    script = CASES[0].script(tmp_path / "events", 2)
    one, two = (run_way(spark, script, tmp_path / str(early), early) for early in (False, True))
    assert one.results[0].num_rows == 3 - 1, "the last second is not over"
    assert one.results[0].equals(two.results[0])
    beside = [len(list((tmp_path / str(early)).rglob("chunks/*.*.arrow"))) for early in (False, True)]
    assert beside[0] == 0 < beside[1]

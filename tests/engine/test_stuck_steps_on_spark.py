"""A worker of Spark that is stuck in machine code is ended, and only the query behind that step fails."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from slicemill.api.mill import Mill
from slicemill.runtime import tasks as task
from support.engine import feed_rows

# RE2 follows 900 threads at each letter, in one call.
SCRIPT = """
CREATE STREAM said (item int, what varchar, ts timestamp micros) ORDER BY ts;
CREATE QUERY slow AS SELECT item FROM said WHERE regexp_like(what, '[ab]*a[ab]{900}c');
CREATE QUERY counted AS SELECT item, count(*) OVER (PARTITION BY item RANGE UNBOUNDED PRECEDING) AS n
  FROM said;
"""
STUCK = "".join(random.Random(1).choices("ab", k=3_000_000))


@pytest.mark.parametrize("execution", ["workers", "jobs"])
def test_a_stuck_step_ends_its_worker_and_fails_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execution: str
) -> None:
    with Mill(spark, tmp_path / "home", subtasks=1, execution=execution) as mill:  # type: ignore[arg-type]
        mill.execute(SCRIPT)
        mill.open()
        feed_rows(mill, "said", [(1, "abc", 1)])
        mill.dispatcher.run_all()
        monkeypatch.setattr(task, "STEP_S", 1.0)
        feed_rows(mill, "said", [(2, STUCK, 2), (2, "c", 3)])
        mill.dispatcher.run_all()
        error = mill.queries["slow"].error or ""
        assert error.startswith("one call in a step took more than") and "its worker was ended" in error
        assert mill.queries["counted"].table().column("item").to_pylist() == [1, 2, 2]
        assert mill.queries["counted"].error is None

"""Temporal queries in a mill: the rows of the reference, with and without a budget, and what was dropped."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from slicemill.api.mill import Mill
from slicemill.api.status import RowRates, queries_table
from slicemill.binder import bind
from slicemill_oracle.runner import run_script

WINDOW = "FROM reading(level) AS R RANGE 60 SECONDS SLIDES 10 SECONDS PARTITION BY sensor"
SCRIPT = f"""
CREATE STREAM reading (sensor int, level int, ts timestamp) ORDER BY ts USING json OPTIONS (path 'readings');
CREATE QUERY whole AS SELECT R.sensor, R.level, VALID(R) {WINDOW};
CREATE QUERY small WITH (memory = '20 tuples') AS SELECT R.sensor, R.level, VALID(R) {WINDOW};
CREATE QUERY slots WITH (memory = '12 runs') AS SELECT R.sensor, R.level, VALID(R) {WINDOW};
CREATE QUERY steady WITH (memory = '2 KB', shedding = 'threshold') AS
  SELECT R.sensor, R.level, VALID(R) {WINDOW} WHERE CAST(VALID(R) AS INTERVAL SECOND) >= 5;
"""


def write(folder: Path) -> None:
    random, ts, level = Random(1), 0, {0: 0, 1: 0, 2: 0}
    folder.mkdir()
    for number in range(3):
        lines = []
        for _ in range(100):
            ts, sensor = ts + 1, random.randrange(3)
            level[sensor] += random.random() > 0.7
            at = f"2024-01-01 00:{ts // 60:02d}:{ts % 60:02d}"
            lines.append(json.dumps({"sensor": sensor, "level": level[sensor], "ts": at}))
        path = folder / f"{number}.json"
        path.write_text("\n".join(lines))
        os.utime(path, (1_000 + number, 1_000 + number))  # Spark takes files by age


def test_a_mill_gives_the_rows_of_the_reference_and_says_what_it_dropped(
    spark: SparkSession, tmp_path: Path
) -> None:
    write(tmp_path / "readings")
    expected = {query.name: query for query in run_script(bind(SCRIPT).catalog, tmp_path).queries}
    with Mill(spark, tmp_path / "home", folder=tmp_path, subtasks=2) as mill:
        mill.execute(SCRIPT.replace("'readings'", "'readings', maxFilesPerTrigger 1"))
        mill.drain()
        for name, reference in expected.items():
            query, metrics = mill.queries[name], mill.queries[name].measured()
            assert query.error is None
            assert sorted(query.timed_rows(), key=repr) == sorted(reference.rows, key=repr)
            assert (metrics.shed is None) == (name == "whole") == (reference.shed is None)
            if metrics.shed is not None and reference.shed is not None:
                assert metrics.shed.dropped == reference.shed.dropped
                assert metrics.shed.accuracy == pytest.approx(reference.shed.accuracy)
                assert json.loads(json.dumps(metrics.plain()))["shed"]["dropped"] == metrics.shed.dropped
        shed = mill.queries["small"].measured().shed
        assert shed is not None and shed.dropped > 0 and 0.2 < shed.accuracy < 1 and len(shed.buckets) > 5
        assert "accuracy" in [str(column.header) for column in queries_table(mill, RowRates(), 0.0).columns]

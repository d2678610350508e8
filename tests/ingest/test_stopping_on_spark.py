"""Shutdown does not wait forever for a Spark query that does not end."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connectors.sender import eventually
from slicemill.api.mill import Mill
from slicemill.runtime.spark_session import STOP_S


def test_reading_stops_even_if_a_spark_batch_is_never_committed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"n": 1}\n')
    with Mill(spark, tmp_path / "home") as mill:
        mill._ingest.frames["s"] = spark.readStream.schema("n int").json(str(tmp_path / "in"))
        mill.execute("CREATE STREAM s (n int); CREATE QUERY q AS SELECT n FROM s")
        mill.open()
        assert spark.conf.get("spark.sql.streaming.stopTimeout") == str(1000 * STOP_S)
        spark.conf.set("spark.sql.streaming.stopTimeout", "300")
        try:
            # Without the dispatcher's loop no commit of the batch happens, and Spark waits for the commit.
            mill._ingest.start(mill.streams, 50)
            eventually(lambda: mill.streams["s"].has_handed)
            mill._ingest.stop()
        finally:
            spark.conf.set("spark.sql.streaming.stopTimeout", str(1000 * STOP_S))
        warnings = [record.getMessage() for record in caplog.records if record.name == "slicemill"]
        assert any(
            warning.startswith("Spark did not end its query that reads s within") for warning in warnings
        )
        mill.dispatcher.admit_handed()
        mill.dispatcher.run_all()
        assert [tuple(timed.row) for timed in mill.queries["q"].rows()] == [(1,)]

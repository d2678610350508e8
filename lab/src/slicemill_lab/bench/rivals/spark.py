"""Spark as a rival in the same session: common poll interval, and settings tuned for Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_MS = 50

# Defaults of settings that `runtime.spark_session` changes, and a state store without a copy per batch.
_SPARKS_OWN = {
    "spark.sql.codegen.hugeMethodLimit": "65535",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@contextmanager
def own_settings(spark: SparkSession) -> Iterator[None]:
    """Use settings that are best for Spark while the block runs, as ours may not suit it."""
    ours = {name: str(spark.conf.get(name)) for name in _SPARKS_OWN}
    try:
        for name, value in _SPARKS_OWN.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in ours.items():
            spark.conf.set(name, value)

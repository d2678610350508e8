"""Spark beside us in one session: how often both poll, and Spark with settings that suit it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_MS = 50

# What `engine.session` sets otherwise, as it is by default; and state that need not be copied on each batch.
_SPARKS_OWN = {
    "spark.sql.codegen.hugeMethodLimit": "65535",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}


@contextmanager
def own_settings(spark: SparkSession) -> Iterator[None]:
    """Spark as it is best, for queries that are started in this block: what suits us need not suit it."""
    ours = {name: str(spark.conf.get(name)) for name in _SPARKS_OWN}
    try:
        for name, value in _SPARKS_OWN.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in ours.items():
            spark.conf.set(name, value)

"""Spark's side of the latency benchmark: one streaming query per query, from sockets to the subscriber.

    python -m slicemill_lab.bench.live.spark_side {one|thirteen} '{"bid": PORT, …}' PORT_OUT FOLDER CATEGORIES

Tuned: RocksDB for state, two shuffle partitions, fast offset and commit logs, and a new batch as soon as the
previous one has ended. Rows are sent to the subscriber from `foreachBatch`, before Spark commits the batch.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slicemill_lab.bench.live.queries import ONE_IN_SPARK, THIRTEEN_IN_SPARK
from slicemill_lab.bench.live.stamped import TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "3g",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.log.level": "OFF",
}


def session() -> SparkSession:
    from pyspark.sql import SparkSession

    from slicemill.runtime.spark_session import ensure_java_home

    ensure_java_home()
    builder = SparkSession.builder.master("local[2]")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def declare(spark: SparkSession, ports: Mapping[str, int], categories: Path) -> None:
    """Declare streams as views. Every query over a stream opens its own connection."""
    for stream, port in ports.items():
        lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
        columns = [declared.split() for declared in TYPES[stream].split(", ")]
        parts = [
            f"CAST(split_part(value, ',', {position}) AS {type_.replace('varchar', 'string')}) AS {name}"
            for position, (name, type_) in enumerate(columns, 1)
        ]
        stamped = lines.selectExpr(*parts).selectExpr("*", "timestamp_micros(sent) AS ts")
        stamped.withWatermark("ts", "0 seconds").createOrReplaceTempView(stream)
    frame = spark.read.option("header", "true").schema("id INT, name STRING").csv(str(categories))
    frame.createOrReplaceTempView("category")


class Delivery:
    """Sends the stamps of a query's rows to the subscriber."""

    def __init__(self, query: str, port: int) -> None:
        self._query = query
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __call__(self, frame: DataFrame, _: int) -> None:
        if "sent" not in frame.columns:
            frame.write.format("noop").mode("append").save()
            return
        stamps = frame.select("sent").toArrow().column("sent").to_pylist()
        self._socket.sendall("".join(f"{self._query},{stamp}\n" for stamp in stamps).encode())


def main(case: str, ports: Mapping[str, int], port_out: int, folder: Path, categories: Path) -> None:
    spark = session()
    declare(spark, ports, categories)
    queries = ONE_IN_SPARK if case == "one" else THIRTEEN_IN_SPARK
    for name, (mode, text) in queries.items():
        writer = spark.sql(text).writeStream.outputMode(mode).option("checkpointLocation", str(folder / name))
        writer.foreachBatch(Delivery(name, port_out)).start()
    ended = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    while not ended.wait(0.2):
        for query in spark.streams.active:
            error = query.exception()
            if error is not None:
                raise error
        if len(spark.streams.active) < len(queries):
            raise RuntimeError("a query has ended")
    for query in spark.streams.active:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))

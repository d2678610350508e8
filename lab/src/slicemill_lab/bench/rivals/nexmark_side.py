"""Program of a system that runs NEXMark queries over files, one job after the other.

    python -m slicemill_lab.bench.rivals.nexmark_side {slicemill|spark}

Jobs arrive as lines of JSON. A job processes the existing files, prints `first`, and waits for a line. Then
it processes the files that arrived meanwhile, and prints `done` and the number of rows of each query.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from slicemill.api.mill import Mill

Job: TypeAlias = Mapping[str, Any]

_STATE_IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"


class NexmarkSide(Protocol):
    """A system with one job at a time."""

    def start(self, job: Job) -> None: ...

    def take_all(self) -> None:
        """Process all files that are there now, until the results are committed."""

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each query. For a changelog, the number of current rows."""

    def stop(self) -> None: ...


class OurSide:
    """slicemill: the queries of a job in one mill, with workers on Spark."""

    def __init__(self) -> None:
        from slicemill.runtime.spark_session import local_session

        self._spark = local_session()
        self._mill: Mill
        self._queries: tuple[str, ...] = ()

    def start(self, job: Job) -> None:
        from slicemill.api.mill import Mill

        self._mill = Mill(self._spark, Path(job["folder"]) / "home", folder=Path(job["root"]))
        self._mill.execute(job["script"])
        self._queries = tuple(job["queries"])

    def take_all(self) -> None:
        self._mill.running.read_all()
        self._mill.dispatcher.run_all()

    def counts(self) -> dict[str, int]:
        self._mill.dispatcher.check()
        queries = self._mill.queries
        return {
            name: queries[name].table().num_rows if queries[name].schema.changelog else queries[name].log.rows
            for name in self._queries
        }

    def stop(self) -> None:
        self._mill.close()


class SparkSide:
    """Spark: a query of Structured Streaming with the noop sink, or a batch query.

    Tuned: two shuffle partitions for two cores, fast offset and commit logs, all waiting files in one batch,
    a poll interval so long that polling costs nothing, and state in memory. With RocksDB, five of these
    queries took 1.0 to 1.8 times the CPU time.
    """

    def __init__(self) -> None:
        from slicemill_lab.bench.live.spark_side import session

        self._spark: SparkSession = session()
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)
        self._spark.conf.set("spark.sql.streaming.stateStore.providerClass", _STATE_IN_MEMORY)
        self._job: Job = {}
        self._query: StreamingQuery | None = None

    def start(self, job: Job) -> None:
        spark, self._job, self._query = self._spark, job, None
        side = spark.read.option("header", "true").schema("key BIGINT, value STRING").csv(job["side"])
        side.createOrReplaceTempView("side")
        if job["mode"] == "batch":
            return
        for name, columns in job["streams"].items():
            frame = spark.readStream.schema(columns).parquet(f"{job['folder']}/{name}")
            frame.withWatermark("ts", "0 seconds").createOrReplaceTempView(name)
        writer = spark.sql(job["text"]).writeStream.format("noop").outputMode(job["mode"])
        writer = writer.option("checkpointLocation", f"{job['folder']}/checkpoint")
        self._query = writer.trigger(processingTime="500 milliseconds").start()

    def take_all(self) -> None:
        if self._query is not None:
            self._query.processAllAvailable()
            return
        # List the files again, as new ones have arrived.
        for name, columns in self._job["streams"].items():
            frame = self._spark.read.schema(columns).parquet(f"{self._job['folder']}/{name}")
            frame.createOrReplaceTempView(name)
        self._spark.sql(self._job["text"]).write.format("noop").mode("overwrite").save()

    def counts(self) -> dict[str, int]:
        name = self._job["name"]
        if self._query is None:
            return {name: self._spark.sql(self._job["text"]).count()}
        if (error := self._query.exception()) is not None:
            raise error
        batches = self._query.recentProgress
        if self._job["mode"] == "update":
            return {name: batches[-1].stateOperators[0].numRowsTotal}
        return {name: sum(max(0, batch.sink.numOutputRows) for batch in batches)}

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()


def main(side: NexmarkSide) -> None:
    for line in sys.stdin:
        side.start(json.loads(line))
        side.take_all()
        _say("first")
        sys.stdin.readline()
        side.take_all()
        _say("done")
        _say(side.counts())
        side.stop()
    # Threads of the JVM would keep the process alive.
    os._exit(0)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sides: Mapping[str, Callable[[], NexmarkSide]] = {"slicemill": OurSide, "spark": SparkSide}
    try:
        main(sides[sys.argv[1]]())
    except BaseException:
        traceback.print_exc()
        os._exit(1)

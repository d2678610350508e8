"""Program of one system, which runs jobs one after the other.

    python side.py {slicemill|spark|flink}

Jobs arrive as lines of JSON on standard input. For each job the program prints `started`, `first` when the
results of the first files are complete, `done` when all results are complete, and then their counts. It waits
for a line, ends the queries and prints `has_failed`. The program runs in several environments, with different
versions of slicemill or none. So packages are imported by name, and only interfaces that every version has
are used.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeAlias

Job: TypeAlias = Mapping[str, Any]

_PATIENCE_S = 1_800.0
_PARENT = os.getppid()


class SystemSide(Protocol):
    """A system under test. `every_s` is an interval at which reading counts is cheap."""

    every_s: float

    def start(self, job: Job) -> None: ...

    def count(self, number: int) -> int:
        """Return the number of results of a query. Raises an error if the query has failed."""

    def stages(self) -> Mapping[str, float]:
        """Return the time per stage since the last call, as far as the system reports it."""

    def stop(self) -> None: ...


class Slicemill:
    """slicemill: all queries in one mill."""

    every_s = 0.02

    def __init__(self) -> None:
        self._spark = _local_session()
        self._mill: Any = None
        self._recording: Any = None
        self._stages: Mapping[str, Any] = {}

    def start(self, job: Job) -> None:
        folder = Path(job["folder"])
        self._mill = import_module("slicemill").Mill(self._spark, folder / "home")
        script = [
            f"CREATE STREAM {name} ({_declared(stream['columns'])}) ORDER BY ts USING {job['format']} "
            f"OPTIONS (path '{stream['folder']}');"
            for name, stream in job["streams"].items()
        ]
        script += [f"CREATE QUERY q{number} AS {text};" for number, text in enumerate(job["queries"])]
        self._mill.execute("\n".join(script))
        self._mill.start()

    def count(self, number: int) -> int:
        self._mill.dispatcher.check()
        query = self._mill.queries[f"q{number}"]
        # The method's name depends on the version.
        return int((getattr(query, "measured", None) or query.metrics)().rows)

    def stages(self) -> Mapping[str, float]:
        found = {name: round(stage.seconds, 3) for name, stage in sorted(self._stages.items())}
        self._end_recording()
        try:
            self._recording = import_module("slicemill.metrics.profiling").recording()
        except ModuleNotFoundError:
            return {}  # older versions do not record stages
        self._stages = self._recording.__enter__()
        return found

    def stop(self) -> None:
        self._end_recording()
        self._mill.close()

    def _end_recording(self) -> None:
        if self._recording is not None:
            self._recording.__exit__(None, None, None)
        self._recording, self._stages = None, {}


def _local_session() -> Any:
    """Return a local session. Its module depends on the version."""
    for name in ("slicemill.runtime.spark_session", "slicemill.engine.session", "slicemill.runtime.session"):
        try:
            return import_module(name).local_session()
        except ModuleNotFoundError:
            continue
    raise ModuleNotFoundError("this version of slicemill has no local_session")


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {type_}" for name, type_ in columns.items())


class Spark:
    """Spark: one streaming query per query, with the noop sink, which only counts rows.

    Tuned: RocksDB for state, two shuffle partitions, all waiting files in one batch, and a poll interval so
    long that polling costs nothing.
    """

    every_s = 0.2

    def __init__(self) -> None:
        self._spark = import_module("slicemill_lab.bench.live.spark_side").session()
        # All batches of a query are inspected, but Spark keeps only a hundred by default.
        self._spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100_000)
        self._queries: list[Any] = []

    def start(self, job: Job) -> None:
        for name, stream in job["streams"].items():
            reader = self._spark.readStream.schema(_declared(stream["columns"])).format(job["format"])
            frame = reader.load(stream["folder"])
            if job["watermarks"]:
                frame = frame.withWatermark("ts", "0 seconds")
            frame.createOrReplaceTempView(name)
        self._queries = []
        for number, text in enumerate(job["queries"]):
            writer = self._spark.sql(text).writeStream.format("noop").outputMode("append")
            writer = writer.option("checkpointLocation", f"{job['folder']}/checkpoint-{number}")
            self._queries.append(writer.trigger(processingTime="500 milliseconds").start())

    def count(self, number: int) -> int:
        query = self._queries[number]
        error = query.exception()
        if error is not None:
            raise error
        # A trigger without input reports -1.
        return sum(max(0, batch.sink.numOutputRows) for batch in query.recentProgress)

    def stages(self) -> Mapping[str, float]:
        return {}

    def stop(self) -> None:
        for query in self._queries:
            query.stop()


class Flink:
    """Flink: all queries in one job, a statement set, without Python workers. Sinks discard results.

    Tuned: object reuse, one task per operator (two took as much CPU time), checkpoints every ten seconds
    only, and one source per stream for all queries. None of these operators has a mini-batch mode, as windows
    collect rows themselves. Results are counted by the metrics of the sinks.
    """

    every_s = 1.0
    settings: Mapping[str, str] = {
        "parallelism.default": "1",
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": "10 s",
        "metrics.fetcher.update-interval": "500",
        "table.local-time-zone": "UTC",
        # Windows share the managed memory: 64 windows do not open with the default of 128 MB.
        "taskmanager.memory.managed.size": "2 gb",
        "restart-strategy.type": "disable",
    }

    def __init__(self) -> None:
        self._table: Any = import_module("pyflink.table")
        self._client: Any = None
        self._job = ""
        self._sinks: dict[int, tuple[str, str]] = {}

    def start(self, job: Job) -> None:
        common: Any = import_module("pyflink.common")
        datastream: Any = import_module("pyflink.datastream")
        port = _free_port()
        config = common.Configuration()
        own = {
            "rest.port": str(port),
            "rest.bind-port": str(port),
            "execution.checkpointing.dir": f"file://{job['folder']}/checkpoints",
        }
        for name, value in {**self.settings, **own}.items():
            config.set_string(name, value)
        env = datastream.StreamExecutionEnvironment.get_execution_environment(config)
        tables = self._table.StreamTableEnvironment.create(env)
        for name, stream in job["streams"].items():
            tables.execute_sql(_flink_table(name, stream, job))
        statements = tables.create_statement_set()
        for number, text in enumerate(job["queries"]):
            found = tables.sql_query(text)
            schema = self._table.Schema.new_builder().from_resolved_schema(found.get_resolved_schema())
            sink = self._table.TableDescriptor.for_connector("blackhole").schema(schema.build()).build()
            tables.create_temporary_table(f"q{number}", sink)
            statements.add_insert(f"q{number}", found)
        self._client = statements.execute().get_job_client()
        self._job = f"http://127.0.0.1:{port}/jobs/{self._client.get_job_id()}"
        names = [vertex["name"] for vertex in self._get("")["vertices"]]
        sources = sum(name.startswith("Source: ") for name in names)
        if sources != len(job["streams"]):
            raise RuntimeError(f"Flink reads {sources} times what are {len(job['streams'])} streams: {names}")
        self._sinks = {}
        ends = time.monotonic() + _PATIENCE_S
        while len(self._sinks) < len(job["queries"]):
            self._find_sinks()
            self._look_for_failure()
            if time.monotonic() > ends:
                raise TimeoutError(f"Flink has no metrics of some sinks: {sorted(self._sinks)}")

    def _find_sinks(self) -> None:
        """Find vertex and metric of each query's sink, such as `q3[17]__Writer.numRecordsIn`."""
        for vertex in self._get("")["vertices"]:
            for metric in self._get(f"/vertices/{vertex['id']}/subtasks/metrics"):
                query, bracket, rest = metric["id"].partition("[")
                if bracket and query[:1] == "q" and query[1:].isdigit() and rest.endswith(".numRecordsIn"):
                    self._sinks[int(query[1:])] = (vertex["id"], metric["id"])
        time.sleep(0.2)

    def _look_for_failure(self) -> None:
        state = self._get("")["state"]
        if state not in ("CREATED", "RUNNING"):
            raise RuntimeError(f"the job is {state}: {self._get('/exceptions')}")

    def count(self, number: int) -> int:
        self._look_for_failure()
        vertex, metric = self._sinks[number]
        found = self._get(f"/vertices/{vertex}/subtasks/metrics?get={metric}&agg=sum")
        return int(found[0]["sum"]) if found else 0

    def _get(self, what: str) -> Any:
        what = what.replace("[", "%5B").replace("]", "%5D")
        with urllib.request.urlopen(self._job + what, timeout=60) as answer:
            return json.load(answer)

    def stages(self) -> Mapping[str, float]:
        return {}

    def stop(self) -> None:
        self._client.cancel().result()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _flink_table(name: str, stream: Mapping[str, Any], job: Job) -> str:
    """Return the DDL of a stream.

    Times are milliseconds. The watermark lags, as rows of equal time may follow.
    """
    columns = [
        "ms BIGINT" if column == "ts" else f"{column} {type_}" for column, type_ in stream["columns"].items()
    ]
    columns.append("ts AS TO_TIMESTAMP_LTZ(ms, 3)")
    # Without a watermark, Flink pushes each filter into its own source, and reads the files many times.
    if job["watermarks"] or len(job["queries"]) > 1:
        columns.append("WATERMARK FOR ts AS ts - INTERVAL '0.001' SECOND")
    options = {
        "connector": "filesystem",
        "path": f"file://{stream['folder']}",
        "format": job["format"],
        "source.monitor-interval": "200 ms",
    }
    given = ", ".join(f"'{option}' = '{value}'" for option, value in options.items())
    return f"CREATE TEMPORARY TABLE {name} ({', '.join(columns)}) WITH ({given})"


def wait_for(side: SystemSide, wanted: Sequence[int]) -> None:
    """Wait until each query has the wanted number of results. Complete queries are not polled again."""
    ends, left = time.monotonic() + _PATIENCE_S, list(range(len(wanted)))
    while left:
        count = side.count(left[-1])
        if count >= wanted[left[-1]]:
            left.pop()
            continue
        if os.getppid() != _PARENT:
            raise RuntimeError("whoever started this is gone")
        if time.monotonic() > ends:
            raise TimeoutError(f"query {left[-1]} has {count} of {wanted[left[-1]]} results")
        time.sleep(side.every_s)


def settled_counts(side: SystemSide, queries: int) -> list[int]:
    """Return the number of results of all queries, after two equal readings."""
    found: list[int] = []
    while True:
        before, found = found, [side.count(number) for number in range(queries)]
        if found == before:
            return found
        time.sleep(side.every_s)


def main(side: SystemSide) -> None:
    for line in sys.stdin:
        job = json.loads(line)
        side.start(job)
        _say("started")
        wait_for(side, job["first"])
        settled_counts(side, len(job["first"]))
        side.stages()
        _say("first")
        wait_for(side, job["expected"])
        # Counting all queries is expensive for some systems, so the measurement ends before.
        _say("done")
        stages = side.stages()
        _say({"counts": settled_counts(side, len(job["expected"])), "stages": stages})
        sys.stdin.readline()
        side.stop()
        _say("stopped")
    # Threads of the JVM would keep the process alive.
    os._exit(0)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    sides: Mapping[str, Callable[[], SystemSide]] = {"slicemill": Slicemill, "spark": Spark, "flink": Flink}
    try:
        main(sides[sys.argv[1]]())
    except BaseException:
        traceback.print_exc()
        # Threads of the JVM would keep the process alive.
        os._exit(1)

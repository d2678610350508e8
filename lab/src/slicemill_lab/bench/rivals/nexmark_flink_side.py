"""Flink's side of NEXMark over files, which runs one job after the other.

    python nexmark_flink_side.py

The program runs in an environment with Flink and without slicemill. Jobs arrive as lines of JSON and are
answered as in `nexmark_side`. A query runs over the warm-up files, and then over all files, as a streaming
job over a finite source. Each stream is one file, because Flink does not read several files in order. Results
go to a sink that discards them. Their final number is determined afterwards, by a count over the same query.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeAlias

Job: TypeAlias = Mapping[str, Any]

# One task per operator, so that there is no network between them; object reuse; state in memory.
_SETTINGS: Mapping[str, str] = {
    "execution.runtime-mode": "STREAMING",
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "taskmanager.memory.managed.size": "1 gb",
    "taskmanager.numberOfTaskSlots": "4",
    "restart-strategy.type": "disable",
    "state.backend.type": "hashmap",
}
# A count changes with each row. These settings emit it once per 1,000 rows; larger values slow joins down.
_SELDOM: Mapping[str, str] = {"enabled": "true", "allow-latency": "600 s", "size": "1000"}


class FlinkSide:
    """One cluster in the JVM of this process for all jobs, so that its start is not measured."""

    def __init__(self) -> None:
        # Imported by name, because the packages are missing where the project is type-checked.
        self._common: Any = import_module("pyflink.common")
        self._table: Any = import_module("pyflink.table")
        jvm = import_module("pyflink.java_gateway").get_gateway().jvm
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
        given = jvm.org.apache.flink.configuration.Configuration()
        self._settings = {
            **_SETTINGS,
            "execution.target": "remote",
            "rest.address": "127.0.0.1",
            "rest.port": port,
        }
        for name, value in {**self._settings, "rest.bind-port": port}.items():
            given.setString(name, value)
        runtime = jvm.org.apache.flink.runtime.minicluster
        builder = runtime.MiniClusterConfiguration.Builder().setConfiguration(given)
        builder = builder.setNumTaskManagers(1).setNumSlotsPerTaskManager(4)
        self._cluster = runtime.MiniCluster(builder.build())
        self._cluster.start()
        self._job: Job = {}

    def start(self, job: Job) -> None:
        self._job = job

    def take(self, files: str) -> None:
        """Run the query over all files of a name."""
        tables = self._tables(files)
        found = tables.sql_query(self._job["text"])
        schema = self._table.Schema.new_builder().from_resolved_schema(found.get_resolved_schema())
        sink = self._table.TableDescriptor.for_connector("blackhole").schema(schema.build()).build()
        tables.create_temporary_table("results", sink)
        found.execute_insert("results").wait()

    def counts(self) -> dict[str, int]:
        tables = self._tables("all")
        for name, value in _SELDOM.items():
            tables.get_config().set(f"table.exec.mini-batch.{name}", value)
        counted = tables.execute_sql(f"SELECT count(*) FROM ({self._job['text']})")
        last = 0
        with counted.collect() as rows:
            for row in rows:
                last = int(row[0])
        return {self._job["name"]: last}

    def _tables(self, files: str) -> Any:
        config = self._common.Configuration()
        for name, value in self._settings.items():
            config.set_string(name, value)
        settings = self._table.EnvironmentSettings.new_instance().with_configuration(config)
        tables = self._table.TableEnvironment.create(settings.in_streaming_mode().build())
        for name, columns in self._job["streams"].items():
            path = f"{self._job['folder']}/{name}/{files}.csv"
            options = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv'"
            tables.execute_sql(f"CREATE TEMPORARY TABLE {name} ({columns}) WITH ({options})")
        for name, text in self._job["views"].items():
            tables.execute_sql(f"CREATE TEMPORARY VIEW {name} AS {text}")
        return tables


def main(side: FlinkSide) -> None:
    for line in sys.stdin:
        job = json.loads(line)
        side.start(job)
        side.take("warm")
        _say("first")
        sys.stdin.readline()
        side.take("all")
        _say("done")
        _say(side.counts() if job["count"] else {})
    # Threads of the JVM would keep the process alive.
    os._exit(0)


def _say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    try:
        main(FlinkSide())
    except BaseException:
        traceback.print_exc()
        os._exit(1)

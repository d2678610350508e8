"""Flink's side of the latency benchmark: one filter over lines from a socket, without Python workers.

    python flink_side.py PORT_IN CONDITION socket PORT_OUT
    python flink_side.py PORT_IN CONDITION files FOLDER

The program runs in an environment with Flink and without slicemill. Results are lines `q,sent`. They go to a
socket at once, without any guarantee after a crash, or to files that become visible when a checkpoint commits
them exactly once. All operators run in one task, so there is no network between them. If results wait for
checkpoints, these are made every 10 ms, as often as Flink allows.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib import import_module
from typing import Any

_COLUMNS = {
    "sent": "split_index(line, ',', 0)",
    "auction": "CAST(split_index(line, ',', 1) AS BIGINT)",
    "bidder": "CAST(split_index(line, ',', 2) AS BIGINT)",
    "price": "CAST(split_index(line, ',', 3) AS BIGINT)",
    "channel": "split_index(line, ',', 4)",
}


def main(port: int, condition: str, how: str, where: str) -> None:
    # Imported by name, because the packages are missing where the project is type-checked.
    common: Any = import_module("pyflink.common")
    datastream: Any = import_module("pyflink.datastream")
    connectors: Any = import_module("pyflink.datastream.connectors.file_system")
    gateway: Any = import_module("pyflink.java_gateway")
    table: Any = import_module("pyflink.table")

    config = common.Configuration()
    config.set_string("execution.buffer-timeout.interval", "0 ms")
    config.set_string("execution.checkpointing.interval", "10 ms" if how == "files" else "1 s")
    env = datastream.StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    tables = table.StreamTableEnvironment.create(env)
    lines = datastream.DataStream(env._j_stream_execution_environment.socketTextStream("127.0.0.1", port))
    tables.create_temporary_view("line", tables.from_data_stream(lines).alias("line"))
    columns = ", ".join(f"{expression} AS {name}" for name, expression in _COLUMNS.items())
    end = "" if how == "files" else " || U&'\\000A'"
    found = tables.sql_query(f"SELECT 'q,' || sent{end} FROM (SELECT {columns} FROM line) WHERE {condition}")
    jvm = gateway.get_gateway().jvm
    text = jvm.java.lang.Class.forName("java.lang.String")
    results = datastream.DataStream(tables._j_tenv.toDataStream(found._j_table, text))
    if how == "socket":
        schema = jvm.org.apache.flink.api.common.serialization.SimpleStringSchema()
        results._j_data_stream.writeToSocket("127.0.0.1", int(where), schema)
    else:
        encoder = common.serialization.Encoder.simple_string_encoder()
        policy = connectors.RollingPolicy.on_checkpoint_rolling_policy()
        sink = connectors.FileSink.for_row_format(where, encoder).with_rolling_policy(policy)
        # One folder; by default Flink creates one per hour.
        sink = sink.with_bucket_assigner(connectors.BucketAssigner.base_path_bucket_assigner())
        results.sink_to(sink.build())
    threading.Thread(target=_end_with_input, daemon=True).start()
    env.execute("filter")


def _end_with_input() -> None:
    """End the process when its standard input is closed."""
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])

"""Flink's side of the latency benchmark: one filter, from a socket to a socket, in the JVM alone.

    python flink_filter.py PORT_IN PORT_OUT CONDITION

It runs in an environment of its own, which has Flink and nothing of slicemill. Lines are
`sent,auction,bidder,price,channel`; what passes leaves as the line `sent`. One task, so no network between
operators; the buffer timeout is 0 all the same. A checkpoint is made every second.
"""

from __future__ import annotations

import sys
from typing import Any

_COLUMNS = {
    "sent": "split_index(line, ',', 0)",
    "auction": "CAST(split_index(line, ',', 1) AS BIGINT)",
    "bidder": "CAST(split_index(line, ',', 2) AS BIGINT)",
    "price": "CAST(split_index(line, ',', 3) AS BIGINT)",
    "channel": "split_index(line, ',', 4)",
}


def main(port_in: int, port_out: int, condition: str) -> None:
    import pyflink.common
    import pyflink.datastream
    import pyflink.java_gateway
    import pyflink.table

    # Flink's packages are not where the project is checked.
    flink: Any = pyflink
    config = flink.common.Configuration()
    config.set_string("execution.buffer-timeout.interval", "0 ms")
    config.set_string("execution.checkpointing.interval", "1 s")
    env = flink.datastream.StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    tables = flink.table.StreamTableEnvironment.create(env)
    lines = env._j_stream_execution_environment.socketTextStream("127.0.0.1", port_in)
    tables.create_temporary_view(
        "line", tables.from_data_stream(flink.datastream.DataStream(lines)).alias("line")
    )
    columns = ", ".join(f"{expression} AS {name}" for name, expression in _COLUMNS.items())
    found = tables.sql_query(
        f"SELECT sent || U&'\\000A' FROM (SELECT {columns} FROM line) WHERE {condition}"
    )
    jvm = flink.java_gateway.get_gateway().jvm
    text = jvm.java.lang.Class.forName("java.lang.String")
    stream = tables._j_tenv.toDataStream(found._j_table, text)
    schema = jvm.org.apache.flink.api.common.serialization.SimpleStringSchema()
    stream.writeToSocket("127.0.0.1", port_out, schema)
    env.execute("filter")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])

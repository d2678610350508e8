"""`arrow:folder`: one Arrow IPC file for each delivered range."""

from __future__ import annotations

import pyarrow as pa

from slicemill.connectors.sinks.sink import with_instants

SUFFIX = "arrow"


def encode(table: pa.Table) -> pa.Buffer:
    shown = with_instants(table)
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, shown.schema) as writer:
        writer.write_table(shown)
    return out.getvalue()

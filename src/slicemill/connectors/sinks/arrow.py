"""`arrow:folder`: one Arrow IPC file per delivered range of epochs."""

from __future__ import annotations

import pyarrow as pa

SUFFIX = "arrow"


def encode(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    return out.getvalue()

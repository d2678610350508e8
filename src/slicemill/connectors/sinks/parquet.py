"""`parquet:folder`: one Parquet file for each delivered range."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from slicemill.connectors.sinks.sink import with_instants

SUFFIX = "parquet"


def encode(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(with_instants(table), out)
    return out.getvalue()

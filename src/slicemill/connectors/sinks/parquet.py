"""`parquet:folder`: one Parquet file per delivered range of epochs."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

SUFFIX = "parquet"


def encode(table: pa.Table) -> pa.Buffer:
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    return out.getvalue()

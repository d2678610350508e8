"""Small tables of stored rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from slicemill.columns.arrow_schema import with_system_columns

COLUMNS = pa.schema([("n", pa.int64())])


def rows(*ts: int, seq: int = 0, arrival_us: int = 0) -> pa.Table:
    """Return rows at the given times; `_seq` counts from `seq`, and `n` is ten times `_seq`."""
    numbers = list(range(seq, seq + len(ts)))
    return stored([(at, number, arrival_us, number * 10) for at, number in zip(ts, numbers, strict=True)])


def stored(tuples: Sequence[tuple[int, int, int, int]]) -> pa.Table:
    """Return a table of rows from tuples of `_ts`, `_seq`, `_arr` and `n`."""
    columns = list(zip(*tuples, strict=True)) or [(), (), (), ()]
    return pa.table([pa.array(column, pa.int64()) for column in columns], with_system_columns(COLUMNS))

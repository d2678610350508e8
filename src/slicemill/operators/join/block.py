"""Rows of one side of a join, grouped by key.

A block holds new rows, or the content of a slice. System columns begin with `#`, columns of the stream with
`.`, so that names never clash.

    #ts #arrival        of rows in time order (waiting rows)
    #seq                row number; in grouped rows only if a query needs it
    #time #first        of grouped rows: their time, and the directory (see `probe`)
    #hash #key0 …       hash of the key; key columns unless equal hashes mean equal keys
    #mask0 …            queries that select the row (S19)
    #number             count of earlier rows of the stream, if a query counts rows
    #deadline           time until which a row can match that is itself a result of a join
    #pending0 …         queries for which a row is unmatched; a slice stores these columns beside its table,
                        since they change, and includes them only while it is rewritten
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.operators.join import probe
from slicemill.operators.join.arrays import Hashes, Places, Times, Words

TS, SEQ, ARRIVAL, TIME, FIRST = "#ts", "#seq", "#arrival", "#time", "#first"
HASH, NUMBER = "#hash", "#number"
MASK, KEY, DATA, DEADLINE, PENDING = "#mask", "#key", ".", "#deadline", "#pending"

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Block:
    """Rows in order of (hash, time, arrival).

    `numbers` is empty unless a query counts rows. `pending` is the mask of queries for which each row is
    unmatched, if a query tracks matches; it changes as rows match.
    """

    table: pa.Table
    times: Times
    hashes: Hashes
    first: Places
    words: Words
    numbers: Times
    pending: Words | None = None

    @property
    def rows(self) -> int:
        return len(self.times)

    @property
    def whole_table(self) -> pa.Table:
        """The table, including the pending columns."""
        table = self.table
        for word in range(0 if self.pending is None else self.pending.shape[1]):
            assert self.pending is not None
            column = pa.array(np.ascontiguousarray(self.pending[:, word]))
            table = table.append_column(f"{PENDING}{word}", column)
        return table


def column_numbers(table: pa.Table, name: str) -> NDArray[Any]:
    """Return a numeric column as one vector."""
    column = table.column(name)
    numbers: NDArray[Any] = (column.chunk(0) if column.num_chunks == 1 else column).to_numpy()
    return numbers


def mask_words(table: pa.Table, words: int) -> Words:
    """Return masks as [row, word]; missing words are 0.

    A table that was written for fewer queries has fewer mask columns.
    """
    return _words(table, MASK, words)


def _words(table: pa.Table, column_name: str, words: int) -> Words:
    names = [f"{column_name}{word}" for word in range(words)]
    if words == 1:
        return column_numbers(table, names[0]).reshape(-1, 1)
    columns = [column_numbers(table, name) for name in names if name in table.column_names]
    masks = np.zeros((table.num_rows, words), np.uint64)
    for word, column in enumerate(columns[:words]):
        masks[:, word] = column
    return masks


def opened(table: pa.Table, words: int) -> Block:
    """Return the block of a slice's table."""
    numbers = column_numbers(table, NUMBER) if NUMBER in table.column_names else _NONE
    pending = None
    beside = [name for name in table.column_names if name.startswith(PENDING)]
    if beside:
        pending = np.array(_words(table, PENDING, words))
        table = table.drop_columns(beside)
    return Block(
        table,
        column_numbers(table, TIME),
        column_numbers(table, HASH).view(np.uint64),
        column_numbers(table, FIRST).view(np.int32),
        mask_words(table, words),
        numbers,
        pending,
    )


def grouped(table: pa.Table, words: int) -> tuple[Block, Places]:
    """Group rows in time order into a block; also return their origins.

    The table may be a concatenation of blocks, in time order.
    """
    hashes = column_numbers(table, HASH).view(np.uint64)
    order = np.empty(len(hashes), np.int32)
    first = np.empty(len(hashes), np.int32)
    probe.group(hashes, order, first)
    kept = table.select([name for name in table.column_names if name != FIRST])
    # Without a key all hashes are equal, and a single block is sorted already.
    sorted_ = kept if not (hashes[1:] < hashes[:-1]).any() else kept.take(pa.array(order))
    return opened(sorted_.combine_chunks().append_column(FIRST, pa.array(first)), words), order


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema; fill columns that the table lacks.

    No query reads the filled values.
    """
    if set(schema.names) <= set(table.column_names) and (same := table.select(schema.names)).schema == schema:
        return same
    columns = []
    for field in schema:
        if field.name in table.column_names:
            columns.append(table.column(field.name))
        elif field.name.startswith(DATA):
            columns.append(pa.nulls(table.num_rows, field.type))
        else:
            columns.append(pa.array(np.zeros(table.num_rows, field.type.to_pandas_dtype())))
    return pa.table(columns, schema=schema)

"""The order of joined tuples: by the latest member, then by the others, the first stream varying slowest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.columns.order import fanned_out, ranked
from slicemill.columns.sequence_bits import SEQ_BITS, ranked_bits
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.join.block import column_numbers
from slicemill.operators.join.spec import InOrder
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS


def in_order(table: pa.Table, members: Sequence[tuple[str, str]], seq_bits: int = SEQ_BITS) -> pa.Table:
    """Rows of a join by (timestamp, latest stream, its tuple's number, the numbers of all).

    `members` are, stream by stream, the columns with a member's timestamp and its number in its stream. Of
    members with the same timestamp that of the last stream is the latest. Numbers have `seq_bits` bits.
    """
    if not table.num_rows:
        return table
    table = table.combine_chunks()
    now = column_numbers(table, "_ts")
    numbers = [column_numbers(table, number) for _, number in members]
    latest = np.zeros(len(now), np.int64)
    number = np.zeros(len(now), np.int64)
    for place, (time, _) in enumerate(members):
        is_latest = np.asarray(table.column(time).cast(pa.int64()).to_numpy()) == now
        latest[is_latest] = place
        number[is_latest] = numbers[place][is_latest]
    order = np.lexsort((*reversed(numbers), number, latest, now))
    place, ranks = table.schema.get_field_index("_seq"), (len(members) - 1).bit_length()
    seqs = ranked(number, latest, seq_bits, ranks)
    ordered = table.set_column(place, "_seq", pa.array(seqs)).take(pa.array(order))
    return fanned_out(ordered, ranked_bits(seq_bits, ranks))


class InOrderStep:
    """Joined rows in the order of one join of all their streams, without what only that needed."""

    def __init__(self, operator: InOrder, output: Schema, seq_bits: int) -> None:
        self._members = operator.members
        self._columns = [TS, SEQ, ARRIVAL, *output.names]
        self._seq_bits = seq_bits

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return in_order(tables[0], self._members, self._seq_bits).select(self._columns), complete[0]


def in_order_step(operator: InOrder, context: StepContext) -> InOrderStep:
    return InOrderStep(operator, context.node.schema, context.seq_bits)

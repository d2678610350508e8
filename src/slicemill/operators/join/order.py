"""The order of joined tuples: by the latest member, then by the others, the first stream varying slowest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.columns.order import SEQ_BITS, fanned_out, ranked, ranked_bits
from slicemill.operators.join.block import column_numbers


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

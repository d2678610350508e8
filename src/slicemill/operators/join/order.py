"""Order of joined rows: by the latest row, then by FROM order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from slicemill.columns.order import fanned_out, ranked
from slicemill.columns.sequence_bits import MOST_BITS, SEQ_BITS, fanned_bits, ranked_bits
from slicemill.esl.types.schema import Schema
from slicemill.operators.context import StepContext
from slicemill.operators.join.block import column_numbers
from slicemill.operators.join.spec import InOrder
from slicemill.storage.arrow_schema import ARRIVAL, SEQ, TS
from slicemill.storage.ties import tie_name, ties_of


def in_order(
    table: pa.Table, members: Sequence[tuple[str, str]], seq_bits: int = SEQ_BITS, *, tied: bool = False
) -> pa.Table:
    """Sort joined rows by (timestamp, latest stream, row number, all numbers).

    `members` are, by stream, the columns with the timestamp and the row number of each joined row. If several
    rows have the latest timestamp, the row of the last stream counts as the latest. Row numbers have
    `seq_bits` bits. If other cells hold some of the rows, `tied` adds columns that order rows across cells.
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
    bits = ranked_bits(seq_bits, ranks)
    if not tied:
        return fanned_out(ordered, bits)
    # With too many bits, ranking drops low bits of the row number, so the full number is the first tie.
    lost = seq_bits + ranks > MOST_BITS
    for place, tie in enumerate((number, *numbers) if lost else numbers):
        ordered = ordered.append_column(tie_name(place, fanned_bits(bits) - bits), pa.array(tie[order]))
    return ordered


class InOrderStep:
    """Orders joined rows like a single join, and drops helper columns."""

    def __init__(self, operator: InOrder, output: Schema, seq_bits: int, *, tied: bool) -> None:
        self._members = operator.members
        self._columns = [TS, SEQ, ARRIVAL, *output.names]
        self._seq_bits = seq_bits
        self._tied = tied

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        ordered = in_order(tables[0], self._members, self._seq_bits, tied=self._tied)
        return ordered.select([*self._columns, *ties_of(ordered)]), complete[0]


def in_order_step(operator: InOrder, context: StepContext) -> InOrderStep:
    return InOrderStep(operator, context.node.schema, context.seq_bits, tied=context.cell.tied)

"""Sequence numbers of rows: ordered by rank and then by the number of the cause, within 62 bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from slicemill.columns.order import Numbering, fan_out, merge_subtasks, rank_seqs, renumber
from slicemill.columns.sequence_bits import SEQ_BITS, fan_out_bits, rank_bits

MOST = 62  # number of bits of a sequence number


def table(rows: list[tuple[int, int]]) -> pa.Table:
    """Return rows with their timestamp, sequence number and position."""
    times, seqs = (pa.array([row[i] for row in rows], pa.int64()) for i in range(2))
    return pa.table({"_ts": times, "_seq": seqs, "place": pa.array(range(len(rows)), pa.int64())})


def pairs(found: pa.Table) -> list[tuple[int, int]]:
    return list(zip(found["_ts"].to_pylist(), found["_seq"].to_pylist(), strict=True))


@given(
    st.integers(1, MOST),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**MOST - 1)), min_size=1, max_size=8),
)
@example(62, [(1, 2**62 - 1), (0, 0), (3, 2**62 - 1)])
@example(42, [(1, 0), (0, 2**42 - 1)])
def test_rows_are_ordered_by_rank_and_then_by_number(bits: int, rows: list[tuple[int, int]]) -> None:
    ranks = np.array([rank for rank, _ in rows])
    seqs = np.array([seq % 2**bits for _, seq in rows])
    found = rank_seqs(seqs, ranks, bits, 2)
    assert found.min() >= 0 and found.max() < 2 ** rank_bits(bits, 2) <= 2**MOST
    lost = max(0, bits + 2 - MOST)  # number of low bits that are dropped because rank bits need their place
    expected = [(rank, seq >> lost) for rank, seq in zip(ranks.tolist(), seqs.tolist(), strict=True)]
    for a, first in zip(expected, found.tolist(), strict=True):
        for b, second in zip(expected, found.tolist(), strict=True):
            assert (a < b) == (first < second)


causes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(1, 3)), max_size=8).map(
    lambda found: [(ts, seq) for ts, seq, rows in sorted(found) for _ in range(rows)]
)


@given(causes, st.sampled_from([3, SEQ_BITS, 50, 57, 58, 59, 62]))
@example([(0, 1)] * 300, SEQ_BITS)
@example([], SEQ_BITS)
def test_rows_of_one_cause_get_different_numbers_if_bits_are_free(
    rows: list[tuple[int, int]], bits: int
) -> None:
    found = pairs(fan_out(table(rows), bits))
    room = fan_out_bits(bits) - bits
    assert found == sorted(found) and all(seq < 2 ** fan_out_bits(bits) for _, seq in found)
    assert [(ts, seq >> room) for ts, seq in found] == rows
    most = max((rows.count(row) for row in rows), default=0)
    assert most > 2**room or len(set(found)) == len(found)


def test_two_fan_out_operators_in_sequence_have_enough_bits() -> None:
    assert SEQ_BITS < fan_out_bits(SEQ_BITS) < fan_out_bits(fan_out_bits(SEQ_BITS)) < MOST
    assert fan_out_bits(MOST) == MOST


@given(causes, st.booleans(), st.booleans(), st.lists(st.integers(0, 1), min_size=24, max_size=24))
def test_a_numbering_ranks_first_and_then_fans_out(
    rows: list[tuple[int, int]], ranks: bool, fans: bool, behind: list[int]
) -> None:
    rank = np.array(behind[: len(rows)])
    found = [seq for _, seq in pairs(Numbering(SEQ_BITS, ranks, fans).apply(table(rows), rank))]
    bits, expected = SEQ_BITS, [seq for _, seq in rows]
    if ranks:
        expected = [seq + (int(r) << bits) for seq, r in zip(expected, rank, strict=True)]
        bits += 1
    if fans:
        room = fan_out_bits(bits) - bits
        assert [seq >> room for seq in found] == expected
    else:
        assert found == expected


@given(st.lists(causes, min_size=1, max_size=4))
@example([[(0, 1), (1, 0)], [(0, 2)]])
@example([[], []])
def test_merged_subtasks_have_the_order_of_one_subtask(subtasks: list[list[tuple[int, int]]]) -> None:
    rows = [(*row, subtask, index) for subtask, own in enumerate(subtasks) for index, row in enumerate(own)]
    tables = [
        table(own).append_column("cell", pa.array([n] * len(own), pa.int64()))
        for n, own in enumerate(subtasks)
    ]
    found = merge_subtasks(tables)
    columns = [found[name].to_pylist() for name in ("_ts", "_seq", "cell", "place")]
    assert list(zip(*columns, strict=True)) == sorted(rows)


@given(causes, st.integers(0, 2**40))
def test_rows_are_numbered_consecutively_from_the_first_number(
    rows: list[tuple[int, int]], first: int
) -> None:
    found = renumber(table(rows), first)
    assert found["_seq"].to_pylist() == list(range(first, first + len(rows)))
    assert found["place"].to_pylist() == list(range(len(rows))) and found.schema == table(rows).schema

"""FIFO buffers with one reader per consumer (M1, M20)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slicemill.types import Timed
from slicemill_oracle.buffers import Buffer, Occupancy, Reader
from slicemill_oracle.punctuation import Item, is_punctuation, punctuation


def item(ts: int) -> Item:
    return (Timed(ts, (ts,)), ts)


def drain(reader: Reader) -> list[int]:
    out = []
    while reader.unread:
        out.append(reader.pop()[0].ts)
    return out


def test_a_reader_returns_items_in_the_order_of_appends() -> None:
    buffer = Buffer(Occupancy())
    reader = buffer.reader()
    for ts in (3, 1, 2):
        buffer.append(item(ts))
    assert reader.head()[0].ts == 3
    assert drain(reader) == [3, 1, 2]


def test_a_tuple_is_freed_when_all_branches_of_a_fork_have_passed_it() -> None:
    occupancy = Occupancy()
    buffer = Buffer(occupancy)
    left, right = buffer.reader(), buffer.reader()
    for ts in range(3):
        buffer.append(item(ts))
    assert occupancy.total == 3
    assert drain(left) == [0, 1, 2]
    assert occupancy.total == 3
    right.pop()
    assert occupancy.total == 2
    assert drain(right) == [1, 2]
    assert (occupancy.total, occupancy.peak) == (0, 3)


def test_a_new_reader_sees_only_later_tuples() -> None:
    buffer = Buffer(Occupancy())
    first = buffer.reader()
    buffer.append(item(1))
    second = buffer.reader()
    buffer.append(item(2))
    assert drain(second) == [2]
    assert drain(first) == [1, 2]


def test_a_buffer_without_readers_stores_no_tuples() -> None:
    occupancy = Occupancy()
    buffer = Buffer(occupancy)
    buffer.append(item(1))
    assert occupancy.peak == 0


def test_close_of_the_slowest_reader_frees_the_tuples_that_only_it_had_to_read() -> None:
    occupancy = Occupancy()
    buffer = Buffer(occupancy)
    slow, fast = buffer.reader(), buffer.reader()
    for ts in range(4):
        buffer.append(item(ts))
    fast.pop()
    slow.close()
    assert occupancy.total == 3
    assert drain(fast) == [1, 2, 3]


def test_a_reader_that_follows_another_reader_first_reads_its_own_rest() -> None:
    upstream, output = Buffer(Occupancy()), Buffer(Occupancy())
    removed, reader = upstream.reader(), output.reader()
    for ts in (1, 2):
        output.append(item(ts))
    for ts in (3, 4):
        upstream.append(item(ts))
    reader.follow(removed)
    upstream.append(item(5))
    assert drain(reader) == [1, 2, 3, 4, 5]
    upstream.append(item(6))
    assert drain(reader) == [6]


def test_punctuation_differs_from_data_and_is_skipped_by_first_data() -> None:
    buffer = Buffer(Occupancy())
    reader = buffer.reader()
    assert reader.first_data() is None
    buffer.append(punctuation(5, 0))
    assert is_punctuation(reader.head())
    assert reader.first_data() is None
    buffer.append(item(7))
    assert reader.first_data() == Timed(7, (7,))


@given(st.lists(st.integers(0, 3), max_size=60))
def test_every_reader_of_a_fork_gets_every_tuple_once_and_in_order(actions: list[int]) -> None:
    occupancy = Occupancy()
    buffer = Buffer(occupancy)
    readers = [buffer.reader() for _ in range(3)]
    got: list[list[int]] = [[], [], []]
    appended = 0
    for action in actions:
        if action == 3:
            buffer.append(item(appended))
            appended += 1
        elif readers[action].unread:
            got[action].append(readers[action].pop()[0].ts)
        assert occupancy.total == appended - min(len(rows) for rows in got)
    for rows, reader in zip(got, readers, strict=True):
        assert rows + drain(reader) == list(range(appended))

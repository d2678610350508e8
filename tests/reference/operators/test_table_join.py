"""Joins of a stream with a stored table (M40)."""

from __future__ import annotations

from slicemill.operators.row_step import RowOperator
from slicemill.types import Row, Timed
from slicemill_oracle.operators.table_join import TableJoin

SELLERS: list[Row] = [("ann", "Rome"), ("bob", "Oslo"), ("ann", "Bern")]


def same_seller(row: Row) -> bool:
    return row[1] == row[2]


def test_a_tuple_can_match_several_rows_in_table_order() -> None:
    join = TableJoin(lambda: SELLERS, 2, same_seller)
    assert join.process(0, Timed(7, (1, "ann"))) == [
        Timed(7, (1, "ann", "ann", "Rome")),
        Timed(7, (1, "ann", "ann", "Bern")),
    ]


def test_an_inner_join_drops_a_tuple_without_match() -> None:
    assert TableJoin(lambda: SELLERS, 2, same_seller).process(0, Timed(7, (1, "eve"))) == []


def test_a_left_join_emits_a_tuple_without_match_with_nulls() -> None:
    join = TableJoin(lambda: SELLERS, 2, same_seller, left=True)
    assert join.process(0, Timed(7, (1, "eve"))) == [Timed(7, (1, "eve", None, None))]
    assert join.process(0, Timed(8, (2, "bob"))) == [Timed(8, (2, "bob", "bob", "Oslo"))]


def test_a_left_join_with_an_empty_table_knows_the_width_of_the_table() -> None:
    assert TableJoin(list, 3, same_seller, left=True).process(0, Timed(1, (1,))) == [
        Timed(1, (1, None, None, None))
    ]


def test_a_table_join_never_waits_for_time() -> None:
    join = TableJoin(lambda: SELLERS, 2, same_seller)
    assert isinstance(join, RowOperator)
    assert not join.waits_for_time
    assert [*join.advance(10), *join.finish()] == []

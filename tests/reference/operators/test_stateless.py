"""Selection, projection, union and sink (M14)."""

from __future__ import annotations

import pytest

from slicemill.operators.row_step import RowOperator
from slicemill.types import Timed
from slicemill_oracle.operators.stateless import ProjectOperator, Select, SinkOperator, Union


def test_a_selection_passes_tuples_for_which_its_predicate_holds() -> None:
    select = Select(lambda row: row[0] == 1)
    assert select.process(0, Timed(5, (1,))) == (Timed(5, (1,)),)
    assert select.process(0, Timed(6, (2,))) == ()


def test_a_projection_emits_a_new_row_with_the_timestamp_of_the_input() -> None:
    assert ProjectOperator(lambda row: (row[1],)).process(0, Timed(5, (1, "x"))) == (Timed(5, ("x",)),)


def test_a_union_passes_the_tuples_of_all_inputs() -> None:
    union = Union(3)
    assert union.inputs == 3
    assert union.process(2, Timed(5, (1,))) == (Timed(5, (1,)),)


def test_a_sink_collects_tuples_in_order() -> None:
    sink = SinkOperator()
    for ts in (1, 2):
        assert sink.process(0, Timed(ts, ())) == ()
    assert [tuple_.ts for tuple_ in sink.rows] == [1, 2]


@pytest.mark.parametrize(
    "operator", [Select(bool), ProjectOperator(lambda row: row), Union(), SinkOperator()]
)
def test_stateless_operators_implement_the_protocol_and_hold_no_tuples(operator: RowOperator) -> None:
    assert isinstance(operator, RowOperator)
    assert operator.waits_for_time == isinstance(operator, Union)
    assert list(operator.advance(10)) == []
    assert list(operator.finish()) == []

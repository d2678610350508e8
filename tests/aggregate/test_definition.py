"""The protocol between aggregates and the operators that run them (M29-M31)."""

from __future__ import annotations

import pytest

from slicemill.aggregates.definition import RowAggregate, align, base_of, evaluate
from slicemill.aggregates.frames import Args
from slicemill.errors import SlicemillError


class Trace:
    """Aggregate that returns the name of the called routine."""

    def initialize(self, args: Args) -> list[object]:
        return [f"initialize {args[0]}"]

    def iterate(self, args: Args) -> list[object]:
        return [f"iterate {args[0]}"]

    def terminate(self) -> list[object]:
        return ["terminate"]


def test_the_value_over_a_list_is_the_result_of_the_last_tuple_and_of_terminate() -> None:
    assert evaluate(Trace, [(1,)]) == ["initialize 1", "terminate"]
    assert evaluate(Trace, [(1,), (2,), (3,)]) == ["iterate 3", "terminate"]


def test_the_value_over_no_tuple_is_the_result_of_terminate() -> None:
    assert evaluate(Trace, []) == ["terminate"]


def test_shorter_results_of_calls_are_padded_with_null() -> None:
    one, two = RowAggregate("one", Trace), RowAggregate("two", Trace, columns=2)
    assert align([one, one, one], [[1, 2], [], [3]]) == [(1, None, 3), (2, None, None)]
    assert align([one, two], [[1, 2], [("a", "b")]]) == [(1, "a", "b"), (2, None, None)]
    assert align([one, two], [[], []]) == []


def test_an_aggregate_without_base_version_names_the_missing_version() -> None:
    with pytest.raises(SlicemillError, match="add CREATE AGGREGATE item_alarm"):
        base_of(RowAggregate("item_alarm", base=None))

"""Counting what window aggregates do and keep."""

from __future__ import annotations

import sys

import pytest

from slicemill.aggregates.registry import BUILTINS
from slicemill_lab.calls import calls_made
from slicemill_lab.mill import e10 as mill_e10
from slicemill_lab.mill import e11 as mill_e11
from slicemill_lab.mill.windows import cost, defined, most_values, over_all, over_rows


def test_calls_are_counted_the_same_every_time_and_the_profiler_is_put_back() -> None:
    before = sys.getprofile()
    counts = {calls_made(lambda: [abs(x) for x in range(50)]) for _ in range(3)}
    assert len(counts) == 1
    assert counts.pop() >= 50
    assert sys.getprofile() is before


def test_a_cost_has_the_answers_of_the_tuples_that_were_measured() -> None:
    found = cost(over_rows(BUILTINS["sum"], 3), [(value,) for value in range(10)], measured=2)
    assert found.answers == (5 + 4 + 6, 5 + 6 + 7, 6 + 7 + 8, 7 + 8 + 9)
    assert found.calls > 1
    assert found.us > 0


@pytest.mark.parametrize(("name", "values"), [("sum", 5), ("max", 5), ("median", 40)])
def test_panes_are_kept_where_results_of_parts_combine(name: str, values: int) -> None:
    # Falling values: max can forget none of them.
    rows = [(-number,) for number in range(100)]
    assert most_values(BUILTINS[name], 40, 10, rows) == values


@pytest.mark.parametrize("module", [mill_e10, mill_e11])
def test_all_four_ways_give_the_same_from_the_first_tuple_on(module: object) -> None:
    text, window = module.ESL, 4  # type: ignore[attr-defined]
    items = [5, 18, 5, 31, 5, 5, 200, 18, 7, 7]
    rows = [(item,) for item in items]
    numbered = [(item, number, window) for number, item in enumerate(items)]
    answers = [
        cost(
            over_all(defined(text, name)) if name == "c" else over_rows(defined(text, name), window), given, 5
        )
        for name, given in (("a", rows), ("b", rows), ("c", numbered), ("d", rows))
    ]
    first, *others = (one.answers for one in answers)
    assert len(first) == len(items)
    assert all(other == pytest.approx(first) for other in others)

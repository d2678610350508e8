"""Counts of the work and the state of window aggregates."""

from __future__ import annotations

import sys

import pytest

from slicemill.aggregates.registry import BUILTINS
from slicemill_lab.calls import calls_made
from slicemill_lab.mill import e10 as mill_e10
from slicemill_lab.mill import e11 as mill_e11
from slicemill_lab.mill.windows import cost, defined, most_values, over_all, over_rows


def test_call_counts_are_reproducible_and_the_profiler_is_restored() -> None:
    before = sys.getprofile()
    counts = {calls_made(lambda: [abs(x) for x in range(50)]) for _ in range(3)}
    assert len(counts) == 1
    assert counts.pop() >= 50
    assert sys.getprofile() is before


def test_a_cost_has_the_results_of_the_measured_tuples() -> None:
    found = cost(over_rows(BUILTINS["sum"], 3), [(value,) for value in range(10)], measured=2)
    assert found.answers == (5 + 4 + 6, 5 + 6 + 7, 6 + 7 + 8, 7 + 8 + 9)
    assert found.calls > 1
    assert found.us > 0


@pytest.mark.parametrize(("name", "values"), [("sum", 5), ("max", 5), ("median", 40)])
def test_panes_are_stored_for_aggregates_with_partial_results(name: str, values: int) -> None:
    # With falling values max must store all of them.
    rows = [(-number,) for number in range(100)]
    assert most_values(BUILTINS[name], 40, 10, rows) == values


@pytest.mark.parametrize("module", [mill_e10, mill_e11])
def test_all_four_methods_give_equal_results_from_the_first_tuple_on(module: object) -> None:
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

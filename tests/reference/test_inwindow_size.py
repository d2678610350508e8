"""Window size of an aggregate that deletes dominated tuples: H(n) of n tuples in random order (M33)."""

from __future__ import annotations

from random import Random

import pytest

from slicemill.aggregates.definition import RowAggregate, WindowAccumulator, window_version
from slicemill.aggregates.frames import Inwindow, WindowFrame
from slicemill.aggregates.registry import BUILTINS
from slicemill.aggregates.udf.lookup import resolve_aggregate
from slicemill.binder import bind
from slicemill_oracle.operators.window_evaluation import WindowedEvaluation

SAMPLE = """CREATE WINDOW AGGREGATE top(next real) : real {
  TABLE inwindow(wnext real);
  INITIALIZE: ITERATE: { DELETE FROM inwindow WHERE wnext < next; INSERT INTO RETURN VALUES (oldest()); } }"""


def mean_size(definition: RowAggregate, window: int, tuples: int) -> float:
    windows: list[Inwindow] = []
    make = window_version(definition)

    def noted(inwindow: Inwindow) -> WindowAccumulator:
        windows.append(inwindow)
        return make(inwindow)

    random = Random(11)
    evaluation = WindowedEvaluation(WindowFrame("ROWS", window - 1), noted)
    sizes = []
    for position in range(tuples):
        evaluation.arrive(position, (random.random(),))
        sizes.append(len(windows[0]))
    return sum(sizes[window:]) / len(sizes[window:])


@pytest.mark.parametrize("window", [2, 10, 100])
def test_max_stores_a_harmonic_number_of_tuples(window: int) -> None:
    harmonic = sum(1 / k for k in range(1, window + 1))
    assert mean_size(BUILTINS["max"], window, 8_000) == pytest.approx(harmonic, rel=0.05)


def test_a_sample_by_highest_priority_stores_as_many_tuples() -> None:
    top = resolve_aggregate("top", bind(SAMPLE).catalog)
    assert mean_size(top, 20, 2_000) == pytest.approx(sum(1 / k for k in range(1, 21)), rel=0.1)

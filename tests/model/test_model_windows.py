"""Count and time windows with all three movements, against slices of the stream (C2)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models.canonical_graphs import blocking_graph, incremental_graph
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.interpret import Instance, run
from slicemill_lab.model.reference.windows import SlidingCountWindow, SlidingTimeWindow


def contents(instances: list[Instance]) -> list[list[int]]:
    window: list[int] = []
    found = []
    for instance in instances:
        assert isinstance(instance.new, tuple)
        window = window[instance.leaving :] + list(instance.new)
        found.append(list(window))
    return found


@settings(max_examples=60)
@given(length=st.integers(0, 20), size=st.integers(1, 6), step=st.integers(1, 8))
def test_a_count_window_slides_tumbles_and_skips(length: int, size: int, step: int) -> None:
    stream = [(k, k) for k in range(length)]
    values = list(range(length))
    ends = range(size, length + 1, step)
    assert contents(list(SlidingCountWindow(size, step).instances(stream))) == [
        values[e - size : e] for e in ends
    ]
    partial = SlidingCountWindow(size, step, partial=True)
    assert contents(list(partial.instances(stream))) == [
        values[max(0, e - size) : e] for e in range(step, length + 1, step)
    ]
    agglomerative = SlidingCountWindow(None, step)
    assert contents(list(agglomerative.instances(stream))) == [
        values[:e] for e in range(step, length + 1, step)
    ]


@settings(max_examples=60)
@given(
    times=st.lists(st.integers(1, 30), min_size=1, max_size=12).map(sorted),
    length=st.none() | st.integers(1, 8),
    step=st.integers(1, 6),
)
def test_a_time_window_contains_an_interval(times: list[int], length: int | None, step: int) -> None:
    window = SlidingTimeWindow(length, step)
    instances = list(window.instances(list(enumerate(times))))
    first = -(-times[0] // step) * step
    ends = [first + k * step for k in range(len(instances))]
    assert ends[-1] >= times[-1] > ends[-1] - step
    assert contents(instances) == [
        [k for k, t in enumerate(times) if t <= e and (length is None or t > e - length)] for e in ends
    ]
    model = expression("sum(x^2) - n")
    kept, again = (list(run(graph(model), instances)) for graph in (incremental_graph, blocking_graph))
    assert kept == again


def test_empty_windows_are_rejected() -> None:
    for make in (
        lambda: SlidingCountWindow(0),
        lambda: SlidingCountWindow(2, 0),
        lambda: SlidingTimeWindow(0, 1),
    ):
        with pytest.raises(ModelError, match="at least one"):
            make()
    assert list(SlidingTimeWindow(3, 1).instances([])) == []

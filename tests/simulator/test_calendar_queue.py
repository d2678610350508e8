"""The calendar queue, and freshness-aware scheduling with it (P35)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import cut
from slicemill_lab.policies.registry import asked
from slicemill_lab.simulator.calendar_loop import simulate_calendar
from slicemill_lab.simulator.calendar_queue import calendar_queue, discard, pop, put
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import objectives
from slicemill_lab.testbeds.quality import quality_of_data


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(1e-4, 1e4)), min_size=1, max_size=30))
def test_with_many_buckets_the_greatest_priority_is_first(puts: list[tuple[int, float]]) -> None:
    queue = calendar_queue(10, 1e-4, 1e4, 10_000)
    wanted = dict[int, float]()
    for item, priority in puts:
        put(queue, item, priority)
        wanted[item] = priority
    discard(queue, puts[0][0])
    wanted.pop(puts[0][0], None)
    while wanted:
        item = pop(queue)
        assert wanted[item] >= max(wanted.values()) * 0.99
        del wanted[item]
    assert pop(queue) == -1


@given(st.lists(st.integers(0, 9), max_size=30))
def test_a_bucket_is_a_fifo_queue(puts: list[int]) -> None:
    queue = calendar_queue(10, 1.0, 1.0, 1)
    waiting: list[int] = []
    for item in puts:
        put(queue, item, 5.0)
        waiting = [*(other for other in waiting if other != item), item]
    assert [pop(queue) for _ in waiting] == waiting


def test_a_calendar_queue_needs_a_range_and_a_bucket() -> None:
    with pytest.raises(ValueError, match="at least one bucket"):
        calendar_queue(3, 1.0, 2.0, 0)


def test_fas_with_a_calendar_queue_is_nearly_as_fresh_and_pays_for_its_operations() -> None:
    work = quality_of_data(0.5, 3, queries=40, streams=4, tuples=100, bursty=2).work
    tasks = cut(work.paths, "query", Objective.OUTPUT_RESPONSE)
    exact = objectives(simulate(work, tasks, asked("fas", tasks.tasks)))["staleness"]
    free = simulate_calendar(work, asked("fas", tasks.tasks), buckets=2000)
    assert objectives(free)["staleness"] == pytest.approx(exact, rel=0.05)
    assert (
        free.finished.sum() < simulate_calendar(work, asked("fas", tasks.tasks), operation=0.1).finished.sum()
    )
    assert free.decisions == sum(
        work.first_tuple[leaf + 1] - work.first_tuple[leaf] for leaf in work.first_operator[:-1]
    )
    assert np.all(free.finished > work.arrival)

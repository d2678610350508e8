"""Latency, idle waiting, queue size and burstiness (M2, E5-E9)."""

from __future__ import annotations

import pytest

from slicemill_oracle.costs import constant_cost
from slicemill_oracle.engine import Engine, Latency
from slicemill_oracle.ets import NoEts
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.metrics import burstiness, outputs_per_interval
from slicemill_oracle.operators.stateless import Union
from slicemill_oracle.sources import Arrival, ScheduledSource


def test_a_union_is_idle_waiting_while_one_input_has_data_and_the_other_is_empty() -> None:
    engine = Engine(
        [
            ScheduledSource("A"),
            ScheduledSource("B"),
            OperatorSpec("U", Union(), ("A", "B"), constant_cost(10)),
            SinkSpec("out", "U"),
        ],
        ets=NoEts(),
    )
    engine.feed("A", [Arrival(100, (1,)), Arrival(200, (1,))])
    engine.feed("B", [Arrival(600, (2,))])
    engine.run_until(1_000)
    metrics = engine.metrics()
    # From 100 to 600 on A; from 610 on, B's tuple waits for A.
    assert metrics.idle_share["U"] == pytest.approx((500 + 390) / 1_000)
    assert metrics.latency["out"] == Latency(outputs=2, mean_us=(510 + 420) / 2, max_us=510)
    assert metrics.peak_items == 3
    assert engine.queue_size() == 1


def test_a_sink_without_stored_rows_still_counts_them() -> None:
    engine = Engine(
        [ScheduledSource("A"), OperatorSpec("U", Union(1), ("A",)), SinkSpec("out", "U", keep=False)]
    )
    engine.feed("A", [Arrival(0, (1,))])
    engine.run()
    assert engine.results("out") == []
    assert engine.metrics().latency["out"].outputs == 1


def test_burstiness_is_the_range_of_outputs_per_interval_divided_by_their_mean() -> None:
    counts = outputs_per_interval([0, 1, 9, 25, 31, 99], start=0, stop=40, step_us=10)
    assert counts == [3, 0, 1, 1]
    assert burstiness(counts) == pytest.approx(3 / 1.25)
    assert burstiness([0, 0]) == 0.0

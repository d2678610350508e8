"""Costs of steps in virtual time."""

from __future__ import annotations

import pytest

from slicemill_oracle.costs import StepCost, constant_cost, per_tuple, random_cost
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec
from slicemill_oracle.operators.stateless import Select
from slicemill_oracle.sources import Arrival, ScheduledSource


def latencies(cost: StepCost, seed: int = 0) -> tuple[int, int]:
    engine = Engine(
        [ScheduledSource("S"), OperatorSpec("σ", Select(lambda _: True), ("S",), cost), SinkSpec("out", "σ")],
        seed=seed,
    )
    engine.feed("S", [Arrival(0, (3,)), Arrival(0, (4,))])
    engine.run_until_idle()
    first, second = engine.sink("out").delivered_at
    return first, second - first


@pytest.mark.parametrize(
    ("cost", "expected"),
    [(constant_cost(7), (7, 7)), (per_tuple(lambda row: 10 * int(str(row[0]))), (30, 40))],
)
def test_a_step_takes_its_cost(cost: StepCost, expected: tuple[int, int]) -> None:
    assert latencies(cost) == expected


def test_sampled_costs_depend_on_the_seed_and_are_never_negative() -> None:
    cost = random_cost(lambda random: random.gauss(50, 10))
    assert latencies(cost, seed=1) == latencies(cost, seed=1)
    assert latencies(cost, seed=1) != latencies(cost, seed=2)
    assert latencies(random_cost(lambda _: -5.0)) == (0, 0)

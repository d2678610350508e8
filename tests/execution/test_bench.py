"""The benchmark of the reference engine."""

from __future__ import annotations

from slicemill.execution.bench import simulator


def test_the_benchmark_gives_a_rate_per_load_and_the_least_of_them() -> None:
    rates = simulator(0.1)
    assert len(rates) == 5
    assert rates["least"] == min(rates.values()) > 0

"""Benchmark of the reference engine and the scheduling loop."""

from __future__ import annotations

from slicemill_lab.bench.simulator import engine_rates, loop_rates


def test_the_benchmark_gives_a_rate_for_each_load_and_policy() -> None:
    assert all(rate > 0 for rate in engine_rates(0.1).values())
    assert all(rate > 0 for rate in loop_rates(1_000).values())

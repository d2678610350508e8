"""Next-operator selection: traces and latencies of DFS, BFS and RR (M15-M20, goldens G8 and G9)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slicemill_oracle.costs import constant_cost
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Spec
from slicemill_oracle.nos import Strategy
from slicemill_oracle.operators.stateless import Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource


def keep(name: str, producer: str) -> OperatorSpec:
    return OperatorSpec(name, Select(lambda _: True), (producer,), constant_cost(1))


def trace(nodes: list[Spec], strategy: Strategy, tuples: int, cut: tuple[str, str] | None = None) -> str:
    engine = Engine(nodes, strategy=strategy, trace=True)
    if cut:
        engine.set_break(*cut)
    engine.feed("S", [Arrival(0, (number,)) for number in range(1, tuples + 1)])
    engine.run_until_idle()
    return " ".join(step.state for step in engine.trace)


def path(first: OperatorSpec) -> list[Spec]:
    return [ScheduledSource("S"), first, keep("Σ1", "σ"), keep("Σ2", "Σ1"), SinkSpec("out", "Σ2")]


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("DFS", "σ Σ1 Σ2 σ Σ1 Σ2 σ Σ1 Σ2"),
        ("BFS", "σ σ σ Σ1 Σ1 Σ1 Σ2 Σ2 Σ2"),
        ("RR", "σ σ σ Σ1 Σ1 Σ1 Σ2 Σ2 Σ2"),
    ],
)
def test_g9_a_path_has_the_published_trace_under_each_strategy(strategy: Strategy, expected: str) -> None:
    assert trace(path(keep("σ", "S")), strategy, 3) == expected


def test_g9_depth_first_repeats_an_operator_that_drops_its_tuple() -> None:
    dropping = OperatorSpec("σ", Select(lambda row: row[0] != 1), ("S",), constant_cost(1))
    assert trace(path(dropping), "DFS", 3) == "σ σ Σ1 Σ2 σ Σ1 Σ2"


def test_a_break_point_causes_breadth_first_order_across_the_cut() -> None:
    assert trace(path(keep("σ", "S")), "DFS", 2, ("Σ1", "Σ2")) == "σ Σ1 σ Σ1 Σ2 Σ2"


@pytest.mark.parametrize(("strategy", "mean_us"), [("DFS", 11.0), ("BFS", 15.5)])
def test_g8_a_burst_through_a_selection_and_a_latent_union_has_the_published_latency(
    strategy: Strategy, mean_us: float
) -> None:
    engine = Engine(
        [
            ScheduledSource("S", "latent"),
            ScheduledSource("T", "latent"),
            keep("σ", "S"),
            OperatorSpec("U", Union(), ("σ", "T"), constant_cost(1)),
            SinkSpec("out", "U"),
        ],
        strategy=strategy,
    )
    engine.feed("S", [Arrival(0, (number,)) for number in range(10)])
    engine.run_until_idle()
    assert engine.metrics().latency["out"].mean_us == mean_us


def test_branches_of_a_fork_run_in_turn_and_backtrack_when_they_are_empty() -> None:
    nodes = [ScheduledSource("S"), keep("σ", "S"), keep("Σ1", "σ"), keep("Σ2", "σ")]
    sinks = [SinkSpec("one", "Σ1"), SinkSpec("two", "Σ2")]
    assert trace([*nodes, *sinks], "DFS", 3) == "σ Σ1 Σ2 σ Σ1 Σ2 σ Σ1 Σ2"
    assert trace([*nodes, *sinks], "BFS", 2) == "σ σ Σ1 Σ1 Σ2 Σ2"
    assert trace([*nodes, *sinks], "RR", 2) == "σ σ Σ1 Σ1 Σ2 Σ2"


def test_a_long_path_is_backtracked_without_recursion() -> None:
    names = ["S", *(f"o{index}" for index in range(2000))]
    nodes = [keep(name, producer) for producer, name in pairwise(names)]
    engine = Engine([ScheduledSource("S"), *nodes, SinkSpec("out", names[-1])])
    engine.feed("S", [Arrival(0, (1,)), Arrival(0, (2,))])
    engine.run_until_idle()
    assert len(engine.results("out")) == 2

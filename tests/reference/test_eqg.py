"""The enhanced query graph: ETS arcs and active registers (M23, golden G13)."""

from __future__ import annotations

from slicemill_oracle.engine import Engine
from slicemill_oracle.eqg import ets_arcs, reachable_arcs
from slicemill_oracle.ets import NoEts
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Topology
from slicemill_oracle.operators.stateless import ProjectOperator, Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource

SHAPE = Topology(
    ("S1", "S2", "S3"),
    {"σ": ("S1",), "U1": ("σ", "S2"), "π": ("U1",), "U2": ("π", "S3")},
)


def test_g13_ets_arcs_bypass_operators_that_do_not_wait_for_time() -> None:
    arcs = ets_arcs(SHAPE, {"U1", "U2"})
    assert [(arc.origin, arc.target) for arc in arcs] == [
        ("S1", "U1"),
        ("S2", "U1"),
        ("U1", "U2"),
        ("S3", "U2"),
    ]
    assert [arc.port for arc in arcs] == [0, 1, 0, 1]
    assert arcs[0].path == (("U1", 0), ("σ", 0))


def test_an_ets_can_reach_operators_behind_its_first_register() -> None:
    arcs = ets_arcs(SHAPE, {"U1", "U2"})
    assert [arc.target for arc in reachable_arcs("S1", arcs)] == ["U1", "U2"]
    assert [arc.target for arc in reachable_arcs("S3", arcs)] == ["U2"]


def test_g13_a_union_forwards_the_minimum_of_its_registers_and_each_value_once() -> None:
    engine = Engine(
        [
            *(ScheduledSource(name, "external") for name in SHAPE.sources),
            OperatorSpec("σ", Select(lambda _: True), ("S1",)),
            OperatorSpec("U1", Union(), ("σ", "S2")),
            OperatorSpec("π", ProjectOperator(lambda row: row), ("U1",)),
            OperatorSpec("U2", Union(), ("π", "S3")),
            SinkSpec("out", "U2"),
        ],
        ets=NoEts(),
        propagation="arcs",
        trace=True,
    )
    engine.feed("S3", [Arrival(0, ("seven",), ts=7), Arrival(0, ("eight",), ts=8)])
    engine.run_until_idle()
    engine.promise("S1", 7)
    engine.promise("S2", 9)
    engine.run_until_idle()
    assert [tuple_.row for tuple_ in engine.results("out")] == [("seven",)]
    assert [step.ts for step in engine.trace if (step.state, step.what) == ("U1", "register")] == [7]
    assert "π" not in {step.state for step in engine.trace}
    steps = engine.steps
    engine.run_until(100)
    assert engine.steps == steps

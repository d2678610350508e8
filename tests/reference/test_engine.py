"""The engine's interface, and live changes one by one (M19)."""

from __future__ import annotations

import pytest

from slicemill.errors import SlicemillError
from slicemill_oracle.clock import RealClock
from slicemill_oracle.costs import constant_cost
from slicemill_oracle.cycle import round_robin
from slicemill_oracle.engine import Engine
from slicemill_oracle.graph import OperatorSpec, SinkSpec, Spec
from slicemill_oracle.nos import StateFragment
from slicemill_oracle.operators.stateless import ProjectOperator, Select, Union
from slicemill_oracle.sources import Arrival, ScheduledSource


def keep(name: str, producer: str) -> OperatorSpec:
    return OperatorSpec(name, Select(lambda _: True), (producer,), constant_cost(1))


def mark(name: str, producer: str) -> OperatorSpec:
    return OperatorSpec(name, ProjectOperator(lambda row: (*row, name)), (producer,), constant_cost(1))


def path() -> list[Spec]:
    return [ScheduledSource("S"), keep("a", "S"), keep("b", "a"), SinkSpec("out", "b")]


def engine_with(count: int, nodes: list[Spec] | None = None, **options: object) -> Engine:
    engine = Engine(nodes or path(), **options)  # type: ignore[arg-type]
    engine.feed("S", [Arrival(0, (number,)) for number in range(count)])
    return engine


def values(engine: Engine, sink: str = "out") -> list[tuple[object, ...]]:
    return [tuple_.row for tuple_ in engine.results(sink)]


def test_a_source_can_feed_a_sink_directly() -> None:
    engine = engine_with(2, [ScheduledSource("S"), SinkSpec("out", "S")])
    engine.run()
    assert values(engine) == [(0,), (1,)]


def test_an_inserted_operator_processes_the_tuples_that_wait_in_its_arc() -> None:
    engine = engine_with(4, strategy="BFS")
    engine.step(3)
    engine.insert(mark("m", "a"), "b")
    engine.run()
    assert values(engine) == [(0, "m"), (1, "m"), (2, "m"), (3, "m")]


def test_tuples_of_a_removed_operator_precede_tuples_that_bypass_it() -> None:
    nodes = [ScheduledSource("S"), mark("m", "S"), keep("b", "m"), SinkSpec("out", "b")]
    engine = engine_with(4, nodes, strategy="BFS")
    engine.step(2)
    engine.remove_operator("m")
    engine.run()
    assert values(engine) == [(0, "m"), (1, "m"), (2,), (3,)]
    assert engine.queue_size() == 0


def test_an_operator_removed_before_a_sink_and_a_fork_leaves_each_branch_its_tuples() -> None:
    nodes = [ScheduledSource("S"), mark("m", "S"), keep("a", "m"), keep("b", "m")]
    sinks = [SinkSpec("m_out", "m"), SinkSpec("a_out", "a"), SinkSpec("b_out", "b")]
    engine = engine_with(3, [*nodes, *sinks], strategy="BFS")
    engine.step(1)
    engine.remove_operator("m")
    engine.run()
    for sink in ("m_out", "a_out", "b_out"):
        assert values(engine, sink) == [(0, "m"), (1,), (2,)]


def test_an_operator_with_several_inputs_is_removed_only_with_its_queries() -> None:
    engine = Engine([ScheduledSource("S"), OperatorSpec("U", Union(), ("S", "S")), SinkSpec("out", "U")])
    with pytest.raises(SlicemillError, match="remove the queries"):
        engine.remove_operator("U")


def test_a_query_added_while_tuples_are_in_flight_sees_later_tuples() -> None:
    engine = engine_with(2)
    engine.at(10, lambda: engine.add(keep("c", "a"), SinkSpec("new", "c")))
    engine.feed("S", [Arrival(20, (7,))])
    engine.run()
    assert values(engine) == [(0,), (1,), (7,)]
    assert values(engine, "new") == [(7,)]


def test_removal_of_a_query_frees_its_operators_and_leaves_shared_operators() -> None:
    engine = engine_with(3, [*path(), keep("c", "a"), SinkSpec("other", "c")], strategy="BFS")
    engine.step(4)
    engine.remove_query("other")
    engine.run()
    assert values(engine) == [(0,), (1,), (2,)]
    assert [row.state for row in engine.state_table()] == ["a", "b"]
    assert engine.queue_size() == 0


def test_the_strategy_can_change_while_tuples_are_in_flight() -> None:
    engine = engine_with(4, trace=True)
    engine.step(2)
    engine.set_strategy("BFS")
    engine.run_until_idle()
    assert "".join(step.state for step in engine.trace) == "ab" + "aaa" + "bbb"


def test_a_break_point_separates_fragments_and_the_scheduler_chooses_between_them() -> None:
    def last(fragments: object) -> StateFragment:
        assert isinstance(fragments, list)
        return fragments[-1]  # type: ignore[no-any-return]

    engine = engine_with(2, choose=last, trace=True)
    engine.set_break("a", "b")
    engine.run_until_idle()
    assert "".join(step.state for step in engine.trace) == "aabb"
    engine.clear_break("a", "b")
    engine.feed("S", [Arrival(10, (1,)), Arrival(10, (2,))])
    engine.run_until_idle()
    assert "".join(step.state for step in engine.trace) == "aabb" + "abab"


def test_round_robin_runs_the_fragments_in_turn() -> None:
    fragments = [StateFragment([]) for _ in range(3)]
    choose = round_robin()
    assert [fragments.index(choose(fragments)) for _ in range(4)] == [0, 1, 2, 0]


def test_a_run_can_stop_at_a_time_and_continue() -> None:
    engine = engine_with(0)
    engine.feed("S", [Arrival(5, ("x",)), Arrival(15, ("y",))])
    engine.run_until(10)
    assert (engine.now, values(engine)) == (10, [("x",)])
    engine.run()
    assert values(engine) == [("x",), ("y",)]


def test_the_engine_also_runs_in_real_time() -> None:
    time_ns = [0]

    def sleep(seconds: float) -> None:
        time_ns[0] += round(seconds * 1_000_000_000)

    engine = Engine(path(), clock=RealClock(lambda: time_ns[0], sleep))
    engine.feed("S", [Arrival(1_000, ("x",)), Arrival(5_000, ("y",))])
    engine.run()
    assert engine.sink("out").delivered_at == [1_000, 5_000]


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (keep("a", "S"), "already a node 'a'"),
        (keep("c", "nowhere"), "no source or operator 'nowhere'"),
        (OperatorSpec("u", Union(), ("a",)), "has 2 inputs, not the 1"),
    ],
)
def test_an_invalid_node_is_rejected_with_its_name(node: Spec, message: str) -> None:
    with pytest.raises(SlicemillError, match=message):
        Engine(path()).add(node)


def test_an_operator_cannot_be_inserted_into_a_missing_arc() -> None:
    with pytest.raises(SlicemillError, match="no arc S → b"):
        Engine(path()).insert(keep("c", "S"), "b")


def test_unknown_sources_and_missing_traces_are_reported() -> None:
    engine = Engine(path())
    with pytest.raises(SlicemillError, match="the sources are S"):
        engine.feed("T", [])
    with pytest.raises(SlicemillError, match="trace=True"):
        engine.trace_text()

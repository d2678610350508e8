"""Graphs: checks, JSON, and equal values of both graphs of a model at every slide (G14)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models.canonical_graphs import blocking_graph, execution_graph, incremental_graph
from slicemill.extensions.models.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.interpret import Instance, asynchronous, run

FUNCTIONS = ["x", "x^2", "2*x + 1", "abs(x)", "where(x > 1, x, 0)", "x^3 - x", "1"]
ACCUMULATED = ["sum({})", "prod({})", "xor(floor({}))", "all({} > 0)", "any({} < 0)"]


@settings(max_examples=60)
@given(
    values=st.lists(st.fractions(-9, 9, max_denominator=3), min_size=1, max_size=14),
    first=st.integers(1, 6),
    steps=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5),
    f=st.sampled_from(FUNCTIONS),
    aggregate=st.sampled_from(ACCUMULATED),
    more=st.sampled_from(["", " + sum(x)/n", " * sum(x^2)"]),
)
def test_g14_the_incremental_graph_gives_the_values_of_the_blocking_graph(
    values, first, steps, f, aggregate, more
) -> None:
    """Covers windows that grow, shrink and stay."""
    if "all" in aggregate or "any" in aggregate:
        more = ""
    model = expression(aggregate.format(f) + more)
    window = list(values[:first])
    rest = list(values[first:])
    instances = [Instance(tuple(window))]
    expected = [model.value([{"x": v} for v in window])]
    for coming, leaving in steps:
        new, rest = rest[:coming], rest[coming:]
        gone = min(leaving, len(window))
        window = window[gone:] + new
        instances.append(Instance(tuple(new), gone))
        expected.append(model.value([{"x": v} for v in window]))
    assert list(run(blocking_graph(model), instances)) == expected
    assert list(run(incremental_graph(model), instances)) == expected


LETS = [
    "let m = mean(x) in sum(abs(x - m))",
    "let m = mean(x) in max(abs(x - m))/sum(abs(x - m))",
    "let m = median(x) in let s = sum(abs(x - m)) in max(abs(x - s)) + m",
    "let low = min(x) in let high = max(x) in sum(abs((x - low)*(high - x)))",
    "let a = 3 in sum(abs(x - a))",
]


@pytest.mark.parametrize("text", LETS)
def test_a_let_value_of_the_window_is_available_in_later_core_statistics(text: str) -> None:
    model = expression(text)
    windows = [(1, 2, 7), (2, 7, 4), (7, 4, -1)]
    instances = [Instance(windows[0]), *(Instance(window[-1:], 1) for window in windows[1:])]
    expected = [model.value([{"x": value} for value in window]) for window in windows]
    assert list(run(blocking_graph(model), instances)) == expected
    for graph in (blocking_graph(model), execution_graph(model)):
        graph.validate()
        named = {(edge.src, graph[edge.dst].core) for edge in graph.edges if edge.src.startswith("let_")}
        constant = {"a"}
        assert named == {
            (f"let_{name}", number)
            for number, core in enumerate(model.cores)
            for name in set(core.scalars) - constant
        }


def test_a_graph_survives_a_round_trip_through_json() -> None:
    graphs = [blocking_graph(expression(text)) for text in ("slope(x, y)", LETS[0])]
    for graph in (*graphs, incremental_graph(expression("prod(x)/n"))):
        again = ModelGraph.from_json(graph.to_json())
        assert again == graph
    with pytest.raises(ModelError, match="not a graph of a model"):
        ModelGraph.from_json('{"nodes": 3}')


def test_a_model_with_a_search_has_no_incremental_graph() -> None:
    with pytest.raises(ModelError, match="a search cannot be undone"):
        incremental_graph(expression("max(x)"))
    assert list(run(blocking_graph(expression("max(i*x)")), [Instance((3, 1, 2)), Instance((1,), 2)])) == [
        6,
        2,
    ]


GRAPH = incremental_graph(expression("sum(x)"))
BROKEN = {
    "two nodes named s": replace(GRAPH, nodes=(*GRAPH.nodes, ModelNode("s", Op.S))),
    "is not a node": replace(GRAPH, result="nowhere"),
    "has no node away": replace(GRAPH, edges=(*GRAPH.edges, ModelEdge("s", "away"))),
    "S takes 0 inputs": replace(GRAPH, edges=(*GRAPH.edges, ModelEdge("g", "s"))),
    "F has 2 outputs": replace(GRAPH, edges=(*GRAPH.edges, ModelEdge("f", "to", src_port=2))),
    "two edges end at one input of g": replace(GRAPH, edges=(*GRAPH.edges, ModelEdge("tn", "g"))),
    "has 0 of 1 inputs": replace(GRAPH, nodes=(*GRAPH.nodes, ModelNode("lost", Op.T, {"f": "x"}))),
    "a cycle that passes no register": replace(
        GRAPH,
        nodes=(*GRAPH.nodes, ModelNode("p", Op.T, {"f": "x"}), ModelNode("q", Op.T, {"f": "x"})),
        edges=(*GRAPH.edges, ModelEdge("p", "q"), ModelEdge("q", "p")),
    ),
    "needs both inputs at the same time": replace(
        GRAPH,
        nodes=(*GRAPH.nodes, ModelNode("z", Op.Z)),
        edges=(
            *GRAPH.edges,
            ModelEdge("s", "z"),
            ModelEdge("s", "z", dst_port=1, phase=InstancePhase.INITIAL),
        ),
    ),
}


@pytest.mark.parametrize(("message", "graph"), BROKEN.items())
def test_a_broken_graph_is_rejected(message: str, graph: ModelGraph) -> None:
    with pytest.raises(ModelError, match=message):
        graph.validate()


def test_transforms_by_position_need_windows_of_fixed_size() -> None:
    graph = blocking_graph(expression("sum(i*x)"))
    graph.validate(fixed_size=True)
    with pytest.raises(ModelError, match="depends on positions"):
        graph.validate(fixed_size=False)


def test_two_streams_are_paired_by_z() -> None:
    """C23: each stream has its own S; Z pairs their elements."""
    nodes = (
        ModelNode("s1", Op.S),
        ModelNode("s2", Op.S),
        ModelNode("z", Op.Z),
        ModelNode("t", Op.T, {"f": "a*b"}),
        ModelNode("ac", Op.AC, {"op": "sum"}),
    )
    arrows = [("s1", "z", 0), ("s2", "z", 1), ("z", "t", 0), ("t", "ac", 0)]
    edges = tuple(ModelEdge(src, dst, dst_port=port) for src, dst, port in arrows)
    graph = ModelGraph(nodes, edges, "ac", ("a", "b"))
    assert list(run(graph, [Instance({"s1": (1, 2, 3), "s2": (4, 5, 6)})])) == [32]
    with pytest.raises(ModelError, match="equal dimension"):
        next(run(graph, [Instance({"s1": (1, 2), "s2": (4,)})]))
    with pytest.raises(ModelError, match=r"s2 \(S\) brings nothing"):
        next(run(graph, [Instance({"s1": (1, 2)})]))
    alone = [Instance({"s1": (1, 2), "s2": (3, 4)}), Instance({"s2": (5, 6)}), Instance({"s1": (0, 1)})]
    assert list(run(graph, asynchronous(alone))) == [11, 17, 6]


def test_a_search_over_an_empty_window_is_null() -> None:
    instances = [Instance((3, 1)), Instance((), 2), Instance((2,))]
    assert list(run(blocking_graph(expression("max(x) + n")), instances)) == [5, None, 3]

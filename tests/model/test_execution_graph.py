"""The execution graph: each core statistic in the form of its class."""

from __future__ import annotations

import pytest

from slicemill.extensions.models.canonical_graphs import execution_graph, incremental_graph
from slicemill.extensions.models.cores import CoreKind
from slicemill.extensions.models.formulas import CATALOGUE
from slicemill.extensions.models.graph import InstancePhase, Op
from slicemill.extensions.models.model import expression


@pytest.mark.parametrize("text", ["sum(x^2)", "variance(x)", "slope(x, y)", "prod(x)"])
def test_the_execution_graph_of_an_incremental_model_is_that_of_the_paper(text: str) -> None:
    kept, paper = (make(expression(text)) for make in (execution_graph, incremental_graph))
    assert [(node.id, node.op, node.core) for node in kept.nodes] == [
        (node.id, node.op, node.core) for node in paper.nodes
    ]
    assert set(kept.edges) == set(paper.edges)


TEXTS = [
    *CATALOGUE.values(),
    "42",
    "sum(x*0.5^age)",
    "sum(cos(2*pi*i/8)*x)",
    "sum(0.5^i*x)",
    "let m = mean(x) in sum(abs(x - m))",
]


@pytest.mark.parametrize("text", TEXTS)
def test_every_execution_graph_is_valid_and_survives_json(text: str) -> None:
    graph = execution_graph(expression(text))
    graph.validate()
    assert graph.from_json(graph.to_json()) == graph


@pytest.mark.parametrize(
    ("text", "kind", "ops"),
    [
        ("sum(i*x)", CoreKind.SHIFT_INCREMENTAL, "T T T M M Ac W T"),
        ("sum(0.5^i*x)", CoreKind.TWO_STACK, "T F M Ac W"),
        ("max(x)", CoreKind.AUX_MEMORY, "T F M A W"),
        ("sum(log(i)*x)", CoreKind.BLOCKING, "T Ac"),
    ],
)
def test_each_class_of_core_statistic_has_its_form(text: str, kind: CoreKind, ops: str) -> None:
    model = expression(text)
    assert model.classes[0].kind is kind
    assert [node.op for node in execution_graph(model).nodes if node.core == 0] == ops.split()


def test_a_blocking_core_statistic_reads_the_whole_window() -> None:
    graph = execution_graph(expression("sum(log(i)*x)"))
    (edge,) = graph.into("tn", InstancePhase.SUCCESSIVE)
    assert edge.src == "m1"
    assert [node.id for node in graph.nodes if node.op is Op.W] == ["wx"]

"""Equal selections and projections of one input become one node."""

from __future__ import annotations

from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.graph import QueryGraph
from slicemill.plan.rules.merge_equal import merge_equal

STREAM = "CREATE STREAM Bid(item int, price real) ORDER BY current_time;"


def merged(text: str) -> QueryGraph:
    catalog = bind(STREAM + text).catalog
    return merge_equal(build_graph(catalog), catalog)


def test_what_is_equal_all_the_way_up_is_there_once() -> None:
    graph = merged(
        """CREATE QUERY a AS SELECT item FROM Bid WHERE price > 1;
        CREATE QUERY b AS SELECT item FROM Bid WHERE price > 1;
        CREATE QUERY c AS SELECT item FROM Bid WHERE price > 2;"""
    )
    assert graph["b"].inputs == graph["a"].inputs == ("a: project",)
    assert "b: where" not in graph.nodes and graph["c"].inputs == ("c: project",)


def test_a_derived_stream_keeps_its_node() -> None:
    graph = merged(
        """CREATE STREAM dear AS SELECT item FROM Bid WHERE price > 1;
        CREATE QUERY q AS SELECT item FROM Bid WHERE price > 1;"""
    )
    assert graph.streams["dear"] == "dear: project" != graph["q"].inputs[0]
    assert graph[graph["q"].inputs[0]].inputs == graph["dear: project"].inputs

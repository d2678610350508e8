"""Graphs run as queries: the engine gives the rows of the pure graph (C10-C13, C15)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.extensions.models.canonical_graphs import blocking_graph, incremental_graph
from slicemill.extensions.models.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op
from slicemill.extensions.models.model import expression
from slicemill.extensions.models.terms import ModelError
from slicemill_lab.model.reference.aggregate import graph_statements
from slicemill_lab.model.reference.interpret import Instance, run
from slicemill_lab.model.reference.windows import SlidingCountWindow
from support.engine import Clock, fed_mill, feed_rows, finish, inline_pool

SECOND = 1_000_000
DECLARED = "CREATE STREAM s (k int, v real, ts timestamp) ORDER BY ts;\n"
# A hand-written graph: W delays by an instance, and F, M and P form separate paths.
DELAYED = ModelGraph(
    (
        ModelNode("s", Op.S),
        ModelNode("w", Op.W, {"storage": "working"}),
        ModelNode("m", Op.M),
        ModelNode("p", Op.P, {"order": "reverse"}),
        ModelNode("f", Op.F, {"where": ["x > 0", "x <= 0"]}),
        ModelNode("both", Op.M),
        ModelNode("t", Op.T, {"fs": ["2*x", "x"], "tail": True}),
        ModelNode("ac", Op.AC, {"op": "sum"}),
    ),
    (
        ModelEdge("w", "m", dst_port=0, phase=InstancePhase.SUCCESSIVE),
        ModelEdge("s", "m", dst_port=1),
        ModelEdge("s", "w"),
        ModelEdge("m", "p"),
        ModelEdge("p", "f"),
        ModelEdge("f", "both", src_port=1, dst_port=0),
        ModelEdge("f", "both", src_port=0, dst_port=1),
        ModelEdge("both", "t"),
        ModelEdge("t", "ac"),
    ),
    "ac",
)
GRAPHS = {
    "squares": incremental_graph(expression("sum(x^2)")),
    "products": incremental_graph(expression("prod(x)/n")),
    "spread": blocking_graph(expression("max(x) - min(x)")),
    "lettered": blocking_graph(expression("A[first] · P[rotate] · M(F[where x > 1], P[sort])")),
    "delayed": DELAYED,
}


@pytest.fixture(scope="module")
def pool():
    return inline_pool()


@settings(max_examples=12, deadline=None)
@given(
    values=st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=12),
    size=st.integers(1, 5),
    cuts=st.sets(st.integers(0, 11)),
)
def test_a_query_gives_the_rows_of_the_pure_graph(values, size, cuts, pool, tmp_path_factory) -> None:
    """Holds for every division into runs, with a restart in the middle."""
    home: Path = tmp_path_factory.mktemp("home")
    esl = DECLARED + "".join(graph_statements(name, graph) for name, graph in GRAPHS.items())
    for name in GRAPHS:
        window = f"PARTITION BY k ROWS {size - 1} PRECEDING"
        esl += f"CREATE QUERY q_{name} AS SELECT {name}(v) OVER ({window}) AS m FROM s;\n"
    clock = Clock()
    mill = fed_mill(home, clock, pool)
    try:
        mill.execute(esl)
        mill.open()
        for place, value in enumerate(values):
            feed_rows(mill, "s", [(1, value, place * SECOND)])
            if place in cuts:
                mill.dispatcher.run_all()
            if place == len(values) // 2:
                mill.close(checkpoint=place % 2 == 0)
                mill = fed_mill(home, clock, pool)
                mill.execute(esl)
                mill.open()
        finish(mill)
        slides = SlidingCountWindow(size, partial=True)
        for name, graph in GRAPHS.items():
            stream = [(value, place) for place, value in enumerate(values)]
            wanted = [None if v is None else float(v) for v in run(graph, slides.instances(stream))]
            assert [timed.row[0] for timed in mill.queries[f"q_{name}"].rows()] == wanted, name
    finally:
        mill.close()


def test_a_group_has_the_value_of_all_its_elements(pool, tmp_path: Path) -> None:
    mill = fed_mill(tmp_path, Clock(), pool)
    try:
        mill.execute(DECLARED + graph_statements("squares", GRAPHS["squares"]))
        query = mill.query("SELECT k, squares(v) AS m FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS] GROUP BY k")
        mill.open()
        feed_rows(mill, "s", [(k, v, 0) for k, v in ((1, 2.0), (2, 5.0), (1, None), (1, 3.0))])
        finish(mill)
        assert sorted(timed.row for timed in query.rows()) == [(1, 13.0), (2, 25.0)]
    finally:
        mill.close()


def test_equal_parts_of_a_graph_are_computed_once() -> None:
    """R9: T[x^2] and its sum occur twice in the graph, and once in the compiled form."""
    nodes = [ModelNode("s", Op.S), *(ModelNode(f"t{n}", Op.T, {"f": "x^2"}) for n in range(2))]
    nodes += [*(ModelNode(f"a{n}", Op.AC, {"op": "sum"}) for n in range(2)), ModelNode("m", Op.M)]
    edges = [ModelEdge(src, dst) for n in range(2) for src, dst in (("s", f"t{n}"), (f"t{n}", f"a{n}"))]
    edges += [ModelEdge(f"a{n}", "m", dst_port=n) for n in range(2)]
    twice = ModelGraph((*nodes, ModelNode("ac", Op.AC, {"op": "sum"})), (*edges, ModelEdge("m", "ac")), "ac")
    from slicemill.aggregates.udf.lookup import import_class

    where = graph_statements("twice", twice).split("'")[3]
    runs = import_class(where)().graph  # type: ignore[attr-defined]
    assert [node.id for node in runs.nodes] == ["s", "t0", "a0", "m", "ac"]
    assert list(run(runs, [Instance((Fraction(2), Fraction(3)))])) == [26]


def test_a_graph_of_two_streams_is_rejected() -> None:
    two = ModelGraph(
        (
            ModelNode("a", Op.S),
            ModelNode("b", Op.S),
            ModelNode("m", Op.M),
            ModelNode("ac", Op.AC, {"op": "sum"}),
        ),
        (ModelEdge("a", "m"), ModelEdge("b", "m", dst_port=1), ModelEdge("m", "ac")),
        "ac",
    )
    with pytest.raises(ModelError, match="join the streams first"):
        graph_statements("two", two)

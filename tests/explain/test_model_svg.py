"""Drawing of a model: both graphs complete and well formed, with classes that differ in colour and shape."""

from __future__ import annotations

import re
from itertools import combinations
from xml.etree import ElementTree

import pytest

from slicemill.explain.layout import Rectangle
from slicemill.extensions.models.canonical_graphs import blocking_graph, execution_graph
from slicemill.extensions.models.cores import CoreKind
from slicemill.extensions.models.drawing import (
    INKS,
    PLAIN,
    WindowUse,
    dimensions,
    format_dimension,
    model_svg,
    outline,
    shape,
)
from slicemill.extensions.models.graph import InstancePhase, ModelNode, Op, Storage
from slicemill.extensions.models.model import expression

SVG = "{http://www.w3.org/2000/svg}"
USE = WindowUse("supposed", 1000, 1)
MIXED = "sum(i*x)/n^2 + max(x) + sum(log(i)*x)"


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(model_svg("m", expression(text), USE))


def by_class(root: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [element for element in root.iter() if name in element.get("class", "").split()]


@pytest.mark.parametrize(
    "text",
    [
        "sum(x^2)",
        "correlation(x, y)",
        MIXED,
        "prod(x) < 3 and all(x > 0)",
        "let m = mean(x) in sum(abs(x - m))",
    ],
)
def test_every_node_and_arc_is_drawn_once_in_both_graphs(text: str) -> None:
    model, root = expression(text), parsed(text)
    graphs = (blocking_graph(model), execution_graph(model))
    drawn = [group.get("data-id") for group in by_class(root, "node")]
    assert drawn == [node.id for graph in graphs for node in graph.nodes]
    arcs = [(g.get("data-source"), g.get("data-target"), g.get("data-phase")) for g in by_class(root, "arc")]
    assert arcs == [(edge.src, edge.dst, edge.phase.value) for graph in graphs for edge in graph.edges]


def test_each_graph_has_the_cost_of_a_slide() -> None:
    assert [title.text for title in by_class(parsed("sum(x^2)"), "subtitle")] == [
        "Blocking: all again, 1,999 calls in a slide of 1 over 1,000 elements (supposed)",
        "Kept up: 5 calls in a slide of 1 over 1,000 elements (supposed)",
    ]


@pytest.mark.parametrize("text", ["sum(log(i)*x)", "42"])
def test_a_model_without_incremental_parts_has_one_graph(text: str) -> None:
    assert len(by_class(parsed(text), "subtitle")) == 1


def test_only_arcs_into_stores_of_the_next_slide_point_backward() -> None:
    """All other arcs begin at the right of a box and end at the left of another box."""
    root = parsed(MIXED)
    for group in by_class(root, "arc"):
        line = next(path for path in group.iter(f"{SVG}path") if "line" in path.get("class", ""))
        into_store = str(group.get("data-target")).startswith("w")
        first_window = group.get("data-phase") == InstancePhase.INITIAL
        assert ("marker-start" in line.keys()) is (into_store and not first_window)  # noqa: SIM118
        xs = [float(x) for x in re.findall(r"[MC, ]?(-?[0-9.]+) -?[0-9.]+", line.get("d", ""))]
        assert xs[0] <= xs[-1]


def test_arcs_of_later_slides_have_another_stroke() -> None:
    root = parsed("sum(x^2)")
    for group in by_class(root, "arc"):
        assert bool(by_class(group, "successive")) is (group.get("data-phase") == InstancePhase.SUCCESSIVE)
    style = root.findtext(f"{SVG}style") or ""
    assert "path.successive { stroke-dasharray" in style and "path.initial { stroke-dasharray" in style


def test_core_classes_differ_in_shape_and_colour() -> None:
    def path(kind: CoreKind | None) -> str:
        return re.sub("#[0-9a-f]{6}", "", shape(kind, Rectangle(0, 0, 60, 30)))

    kinds = (CoreKind.INCREMENTAL, CoreKind.SHIFT_INCREMENTAL, CoreKind.AUX_MEMORY, CoreKind.BLOCKING)
    for one, other in combinations(kinds, 2):
        assert path(one) != path(other)
        assert INKS[one].edge != INKS[other].edge
    assert PLAIN.edge not in {ink.edge for ink in INKS.values()}


def test_storage_classes_have_different_borders() -> None:
    drawn = {
        outline(ModelNode("w", Op.W, {"storage": storage.value}), None, Rectangle(0, 0, 60, 30))
        for storage in Storage
    }
    assert len(drawn) == len(Storage)


def test_the_legend_names_exactly_the_occurring_elements() -> None:
    words = [element.text for element in by_class(parsed("sum(x)"), "legend")]
    assert words == [
        "serves all cores", "incremental", "blocking", "for the first window", "at later slides",
        "from the first window on", "stored for the next slide", "what has arrived", "a store",
        "filter, splits a vector", "merge, joins vectors", "transform, each value", "accumulate into one",
        "size of window, of slide",
    ]  # fmt: skip
    assert "needs extra memory" in [element.text for element in by_class(parsed(MIXED), "legend")]


def test_tooltips_contain_the_reason_of_a_class() -> None:
    stories = [group.findtext(f"{SVG}title") or "" for group in by_class(parsed(MIXED), "blocking")]
    assert sum("BLOCKING: not uniform: uses position i" in story for story in stories) == 2


@pytest.mark.parametrize("text", ["slope(x, y)", MIXED])
def test_boxes_do_not_overlap_and_text_stays_inside(text: str) -> None:
    root = parsed(text)
    height = float(root.get("height", "0"))
    for element in root.iter(f"{SVG}text"):
        assert 0 <= float(element.get("y", "0")) <= height
    for graph in (group for group in root if by_class(group, "node")):
        labels = by_class(graph, "fact")
        spots = [(float(label.get("x", "0")), float(label.get("y", "0"))) for label in labels]
        assert len(spots) == len(set(spots))
        circles = [
            (float(c.get("cx", "0")), float(c.get("cy", "0")))
            for g in by_class(graph, "node")
            for c in g.iter(f"{SVG}circle")
        ]
        for (ax, ay), (bx, by) in combinations(circles, 2):
            assert abs(ax - bx) > 22 or abs(ay - by) > 22


def test_arcs_have_the_dimensions_of_their_vectors() -> None:
    sizes = dimensions(execution_graph(expression("sum(x)/n")))
    found = {name: [format_dimension(size) for size in outputs] for name, outputs in sizes.items()}
    assert found["f"] == ["d", "n - d"] and found["m1"] == ["n"] and found["m2"] == ["2d"]
    assert (
        found["m3"] == ["2d + 1"] and found["ac"] == ["1"] and found["mv1"] == ["2"] and found["g"] == ["1"]
    )
    assert format_dimension(dimensions(execution_graph(expression("max(x)")))["wv"][0]) == "≤ n"

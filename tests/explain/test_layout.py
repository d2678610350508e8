"""Layered drawings: no overlap, arcs point forward, trees have no crossings, chains are straight."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.explain.layout import (
    Box,
    Layout,
    Rectangle,
    assign_layers,
    crossings,
    lay_out,
    order_layers,
    pack_rectangles,
    ranks,
)

Arcs = list[tuple[str, str]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], Arcs]:
    """Draw a random DAG, with parallel arcs and several connected components."""
    count = draw(st.integers(1, 14))
    side = st.integers(10, 200).map(float)
    boxes = [Box(str(i), draw(side), draw(side), draw(st.integers(0, 40))) for i in range(count)]
    pairs = [(str(i), str(j)) for i in range(count) for j in range(i + 1, count)]
    arcs = draw(st.lists(st.sampled_from(pairs), max_size=24)) if pairs else []
    return boxes, arcs


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[Box], Arcs]:
    """Draw a tree whose arcs all point away from its root, or all towards it; boxes have random numbers."""
    count = draw(st.integers(2, 25))
    number = draw(st.permutations(range(count)))
    towards_root = draw(st.booleans())
    arcs = []
    for i in range(1, count):
        parent = draw(st.integers(max(0, i - 6), i - 1))
        pair = (str(number[parent]), str(number[i]))
        arcs.append(pair[::-1] if towards_root else pair)
    return [Box(str(i), 60.0, 30.0) for i in range(count)], arcs


def overlap(a: Rectangle, b: Rectangle) -> bool:
    return a.x < b.right and b.x < a.right and a.y < b.bottom and b.y < a.bottom


def curves(layout: Layout) -> list[tuple[float, float, float, float]]:
    """Return all segments of arcs between columns as (x, y, x, y)."""
    return [
        (*a, *b)
        for route in layout.routes
        for a, b in zip(route[1:-1:2], route[2:-1:2], strict=True)
    ]  # fmt: skip


def count_crossings(layout: Layout) -> int:
    """Count crossings: curves between the same columns cross if the order of their ends differs."""
    return sum(
        (a[0], a[2]) == (b[0], b[2]) and (a[1] - b[1]) * (a[3] - b[3]) < -1e-6
        for a, b in combinations(curves(layout), 2)
    )


@settings(max_examples=120)
@given(graphs())
def test_boxes_and_components_do_not_overlap(graph: tuple[list[Box], Arcs]) -> None:
    layout = lay_out(*graph)
    assert list(layout.boxes) == [box.id for box in graph[0]]
    for rectangles in (layout.boxes.values(), layout.parts):
        assert not any(overlap(a, b) for a, b in combinations(rectangles, 2))
    for r in layout.boxes.values():
        assert r.x >= 0 and r.y >= -1e-6
        assert r.right <= layout.width + 1e-6 and r.bottom <= layout.height + 1e-6


@settings(max_examples=120)
@given(graphs())
def test_arcs_point_forward_and_avoid_other_boxes(graph: tuple[list[Box], Arcs]) -> None:
    boxes, arcs = graph
    layout = lay_out(boxes, arcs)
    for (source, target), route in zip(arcs, layout.routes, strict=True):
        start, end = layout.boxes[source], layout.boxes[target]
        assert route[0] == (start.right, start.middle)
        assert route[-1][0] == end.x and end.y < route[-1][1] < end.bottom
        assert [x for x, _ in route] == sorted(x for x, _ in route)
        for (ax, ay), (bx, by) in zip(route[::2], route[1::2], strict=True):
            assert ay == by, "level pieces are level"
            level = Rectangle(ax, ay, bx - ax, 0.0)
            others = [r for box_id, r in layout.boxes.items() if box_id not in (source, target)]
            assert not any(overlap(level, r) for r in others)
    columns = [(r.x, r.right) for r in layout.boxes.values()]
    parts = list(layout.parts)
    for ax, ay, bx, _ in curves(layout):
        part = next(p for p in parts if p.x <= ax <= p.right and p.y - 1e-6 <= ay <= p.bottom + 1e-6)
        inside = [(x, right) for x, right in columns if part.x <= x and right <= part.right]
        same_rows = [r for r in layout.boxes.values() if overlap(r, part)]
        assert inside and all(r.right <= ax or r.x >= bx for r in same_rows), "curves lie between columns"


@settings(max_examples=150)
@given(trees())
def test_trees_have_no_crossings(tree: tuple[list[Box], Arcs]) -> None:
    assert count_crossings(lay_out(*tree)) == 0


@settings(max_examples=60)
@given(graphs())
def test_the_same_graph_gives_the_same_drawing(graph: tuple[list[Box], Arcs]) -> None:
    assert lay_out(*graph) == lay_out(*graph)


def test_two_queries_are_reordered_to_avoid_a_crossing() -> None:
    graph = assign_layers(4, [(0, 3), (1, 2)])
    assert crossings([list(layer) for layer in graph.layers], graph.right) == 1
    assert crossings(order_layers(graph), graph.right) == 0


def test_a_planar_mesh_is_drawn_without_crossings() -> None:
    """Three streams, each pair joined, and a union of each join with the next: planar, but no tree."""
    arcs = [("a", "x"), ("b", "x"), ("b", "y"), ("c", "y"), ("c", "z"), ("x", "u"), ("y", "u"), ("z", "v")]
    shuffled = ["c", "a", "b", "z", "x", "y", "v", "u"]
    assert count_crossings(lay_out([Box(i, 50.0, 30.0) for i in shuffled], arcs)) == 0


def test_a_chain_is_straight() -> None:
    names = [str(i) for i in range(9)]
    boxes = [Box(name, 50.0 + 7 * i, 20.0 + 5 * (i % 3)) for i, name in enumerate(names)]
    layout = lay_out(boxes, list(pairwise(names)))
    assert len({r.middle for r in layout.boxes.values()}) == 1


def test_a_long_arc_is_straight_beside_the_chain_it_passes() -> None:
    arcs = [("a", "b"), ("b", "c"), ("c", "d"), ("a2", "d"), ("a2", "e")]
    layout = lay_out([Box(i, 50.0, 30.0) for i in ("a", "b", "c", "d", "a2", "e")], arcs)
    heights = {y for _, y in layout.routes[3][2:-2]}
    assert len(heights) == 1


def test_sources_are_placed_next_to_their_readers() -> None:
    assert ranks(6, [(0, 1), (1, 2), (2, 3), (4, 3), (5, 3)]) == [0, 1, 2, 3, 2, 2]


def test_arcs_of_one_source_share_a_path_as_long_as_possible() -> None:
    graph = assign_layers(5, [(0, 1), (1, 2), (2, 3), (0, 3), (2, 4), (0, 4)])
    assert graph.paths[3][:-1] == graph.paths[5][:-1]


def test_components_fill_a_screen_instead_of_a_strip() -> None:
    _, width, height = pack_rectangles([(100.0, 40.0)] * 30, 10.0)
    assert 1.0 < width / height < 2.5
    assert pack_rectangles([], 10.0) == ([], 0.0, 0.0)


def test_two_hundred_queries_are_laid_out_quickly() -> None:
    boxes = [Box(f"s{i}", 80.0, 30.0) for i in range(4)]
    arcs: Arcs = []
    for query in range(200):
        boxes += [Box(f"{step}{query}", 80.0, 30.0) for step in ("filter", "join", "sink")]
        arcs += [(f"s{query % 4}", f"filter{query}"), (f"filter{query}", f"join{query}")]
        arcs += [(f"s{(query * 7 + 1) % 4}", f"join{query}"), (f"join{query}", f"sink{query}")]
    layout = lay_out(boxes, arcs)
    assert len(layout.routes) == 800

"""Long drawings folded into bands: no overlap, and turns of arcs cross nothing."""

from __future__ import annotations

from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.explain.layout import Box, Layout, Rectangle, lay_out

Arcs = list[tuple[str, str]]


@st.composite
def long_graphs(draw: st.DrawFn) -> tuple[list[Box], Arcs]:
    """Draw parallel chains with some arcs between them, much longer than high."""
    lanes, length = draw(st.integers(1, 3)), draw(st.integers(12, 20))
    names = [[f"{lane}.{i}" for i in range(length)] for lane in range(lanes)]
    arcs = [pair for lane in names for pair in pairwise(lane)]
    for _ in range(draw(st.integers(0, 5))):
        a, b = draw(st.integers(0, lanes - 1)), draw(st.integers(0, lanes - 1))
        i = draw(st.integers(0, length - 3))
        arcs.append((names[a][i], names[b][draw(st.integers(i + 1, length - 1))]))
    height = st.integers(20, 40).map(float)
    return [Box(name, 80.0, draw(height)) for lane in names for name in lane], arcs


def straight_pieces(layout: Layout) -> list[tuple[int, Rectangle]]:
    """Return horizontal and vertical lines with the number of their arc."""
    pieces = []
    for arc, route in enumerate(layout.routes):
        for (ax, ay), (bx, by) in pairwise(route):
            if ax == bx or ay == by:
                pieces.append((arc, Rectangle(min(ax, bx), min(ay, by), abs(ax - bx), abs(ay - by))))
    return pieces


def inside(piece: Rectangle, box: Rectangle) -> bool:
    within_x = piece.x < box.right - 1e-6 and piece.right > box.x + 1e-6
    return within_x and piece.y < box.bottom - 1e-6 and piece.bottom > box.y + 1e-6


@settings(max_examples=60)
@given(long_graphs())
def test_in_bands_boxes_do_not_overlap_and_arcs_avoid_boxes(graph: tuple[list[Box], Arcs]) -> None:
    boxes, arcs = graph
    layout = lay_out(boxes, arcs, widest=700.0)
    assert not any(inside(a, b) for a, b in combinations(layout.boxes.values(), 2))
    pieces = straight_pieces(layout)
    assert not any(inside(piece, box) for _, piece in pieces for box in layout.boxes.values())
    assert all(p.x >= -1e-6 and p.right <= layout.width + 1e-6 for _, p in pieces)
    for (_, target), route in zip(arcs, layout.routes, strict=True):
        end = layout.boxes[target]
        assert route[-1][0] == end.x and end.y < route[-1][1] < end.bottom


@settings(max_examples=40)
@given(long_graphs())
def test_turns_of_arcs_between_bands_do_not_cross(graph: tuple[list[Box], Arcs]) -> None:
    boxes, arcs = graph
    layout = lay_out(boxes, arcs, widest=700.0)
    pieces = straight_pieces(layout)
    upright = {(p.x, p.y, p.bottom) for _, p in pieces if p.width == 0 and p.height > 0}
    level = {(p.y, p.x, p.right) for _, p in pieces if p.height == 0}
    assert not any(
        left + 1e-6 < x < right - 1e-6 and top + 1e-6 < y < bottom - 1e-6
        for x, top, bottom in upright
        for y, left, right in level
    )


def test_a_long_chain_is_folded_into_as_few_bands_as_fit() -> None:
    names = [str(i) for i in range(24)]
    layout = lay_out([Box(name, 80.0, 30.0) for name in names], list(pairwise(names)), widest=1100.0)
    assert len({r.y for r in layout.boxes.values()}) == 3
    assert layout.width < 1200.0


def test_a_high_drawing_is_not_folded() -> None:
    boxes = [Box(f"{lane}.{i}", 80.0, 40.0) for lane in range(30) for i in range(10)]
    arcs = [(f"{lane}.{i}", f"{lane}.{i + 1}") for lane in range(30) for i in range(9)]
    arcs += [("0.0", f"{lane}.1") for lane in range(1, 30)]
    layout = lay_out(boxes, arcs, widest=700.0)
    assert all(a[0] <= b[0] for route in layout.routes for a, b in pairwise(route))

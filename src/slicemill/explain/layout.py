"""Layered layout of boxes and arcs, from left to right.

The layout is independent of queries. Each connected part is laid out in steps: assignment to layers
(`layout_layers`), order within a layer (`layout_order`), heights (`layout_coordinates`), folding into bands
(`layout_fold`), arcs. Then the parts are packed into rows (`layout_pack`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from slicemill.explain.layout_coordinates import heights
from slicemill.explain.layout_fold import Fold, apart, folded
from slicemill.explain.layout_layers import Layered, layered
from slicemill.explain.layout_order import ordered
from slicemill.explain.layout_pack import packed

_BETWEEN_BOXES = 20.0
_BEND_SIZE = 2.0
_BETWEEN_PARTS = 52.0
_ENTRY_SPACING = 12.0
_ENTRY_MARGIN = 9.0  # distance from a box's corners
_NARROWEST_GAP = 44.0
_WIDEST_GAP = 320.0
_GAP_PER_RISE = 0.14  # extra width for steep arcs

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """A box to place.

    Arcs branch off `stub` after its right edge, to leave room for a label.
    """

    id: str
    width: float
    height: float
    stub: float = 0.0


@dataclass(frozen=True, slots=True)
class Rectangle:
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.x + self.width

    @property
    def bottom(self) -> float:
        return self.y + self.height

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class Layout:
    """Positions of boxes and arcs.

    `routes` are in the order of the given arcs. The points of a route are connected by horizontal lines
    (first to second, third to fourth, …). In between are curves with horizontal ends, or vertical lines where
    x is the same. `parts` are the frames of connected parts.
    """

    width: float
    height: float
    boxes: dict[str, Rectangle]
    routes: tuple[tuple[Point, ...], ...]
    parts: tuple[Rectangle, ...]


def lay_out(boxes: Sequence[Box], arcs: Sequence[tuple[str, str]], widest: float = math.inf) -> Layout:
    """Place boxes and route arcs, which must not form a cycle.

    Parts wider than `widest` are folded if that makes them smaller.
    """
    parts = [_part(members, arcs, widest) for members in _connected(boxes, arcs)]
    spots, width, height = packed([(part.width, part.height) for part in parts], _BETWEEN_PARTS)
    placed: dict[str, Rectangle] = {}
    routes: dict[int, tuple[Point, ...]] = {}
    frames: list[Rectangle] = []
    for part, (x, y) in zip(parts, spots, strict=True):
        frames.append(Rectangle(x, y, part.width, part.height))
        for box_id, r in part.boxes.items():
            placed[box_id] = Rectangle(x + r.x, y + r.y, r.width, r.height)
        for index, route in part.routes.items():
            routes[index] = tuple((x + a, y + b) for a, b in route)
    in_order = {box.id: placed[box.id] for box in boxes}
    return Layout(width, height, in_order, tuple(routes[i] for i in range(len(arcs))), tuple(frames))


@dataclass(frozen=True, slots=True)
class _Part:
    width: float
    height: float
    boxes: dict[str, Rectangle]
    routes: dict[int, tuple[Point, ...]]


def _connected(boxes: Sequence[Box], arcs: Sequence[tuple[str, str]]) -> list[list[Box]]:
    near: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in arcs:
        near[source].append(target)
        near[target].append(source)
    group: dict[str, int] = {}
    for box in boxes:
        waiting = [box.id] if box.id not in group else []
        number = len(set(group.values())) if waiting else 0
        while waiting:
            current = waiting.pop()
            if current not in group:
                group[current] = number
                waiting.extend(near[current])
    members: defaultdict[int, list[Box]] = defaultdict(list)
    for box in boxes:
        members[group[box.id]].append(box)
    return [members[number] for number in sorted(members)]


def _part(boxes: list[Box], all_arcs: Sequence[tuple[str, str]], widest: float) -> _Part:
    number = {box.id: i for i, box in enumerate(boxes)}
    own = [(i, number[s], number[t]) for i, (s, t) in enumerate(all_arcs) if s in number]
    graph = layered(len(boxes), [(s, t) for _, s, t in own])
    order = ordered(graph)
    size = [box.height for box in boxes] + [_BEND_SIZE] * (len(graph.left) - len(boxes))
    flat = heights(graph, order, size, _BETWEEN_BOXES)
    fold = folded(graph, order, flat, size, _columns(boxes, graph, flat), widest)
    layer_of = {v: i for i, layer in enumerate(graph.layers) for v in layer}
    placed = [
        Rectangle(fold.columns[layer_of[i]][0], fold.heights[i] - box.height / 2, box.width, box.height)
        for i, box in enumerate(boxes)
    ]
    entries = _entries(graph, fold, placed)
    routes: dict[int, tuple[Point, ...]] = {}
    for (index, source, target), path, entry in zip(own, graph.paths, entries, strict=True):
        points: list[Point] = [(placed[source].right, fold.heights[source])]
        for vertex, following in pairwise(path):
            points += _leave(vertex, fold, layer_of[vertex])
            height = entry if following == target else fold.heights[following]
            points.append((fold.columns[layer_of[following]][0], height))
        routes[index] = (*points, (placed[target].x, entry))
    return _Part(fold.width, fold.height, dict(zip(number, placed, strict=True)), routes)


def _leave(vertex: int, fold: Fold, layer: int) -> list[Point]:
    """Return the points from a vertex to where its arcs branch."""
    y = fold.heights[vertex]
    turn = fold.turns.get(vertex)
    if turn is None:
        return [(fold.columns[layer][1], y)]
    lanes = [(turn.right, y), (turn.right, turn.between), (turn.left, turn.between), (turn.left, turn.y)]
    return [*lanes, (turn.x, turn.y)]


def _columns(boxes: list[Box], graph: Layered, y: dict[int, float]) -> list[tuple[float, float]]:
    """Return the left and right edges of layers; steep arcs widen gaps."""
    columns: list[tuple[float, float]] = []
    x = 0.0
    for layer in graph.layers:
        width = max((boxes[v].width + boxes[v].stub for v in layer if not graph.is_bend(v)), default=0.0)
        if all(not graph.right[v] for v in layer):
            width = max((boxes[v].width for v in layer if not graph.is_bend(v)), default=0.0)
        columns.append((x, x + width))
        rise = max((abs(y[v] - y[w]) for v in layer for w in graph.right[v]), default=0.0)
        x += width + min(_WIDEST_GAP, _NARROWEST_GAP + _GAP_PER_RISE * rise)
    return columns


def _entries(graph: Layered, fold: Fold, placed: list[Rectangle]) -> list[float]:
    """Return the height at which each arc enters its target box.

    It is the height at which the arc arrives, if that is within the box's side.
    """
    by_target: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
    for arc, path in enumerate(graph.paths):
        before = path[-2]
        height = fold.turns[before].y if before in fold.turns else fold.heights[before]
        by_target[path[-1]].append((height, arc))
    entries = [0.0] * len(graph.paths)
    for target, arrivals in by_target.items():
        arrivals.sort()
        box = placed[target]
        levels = _within([height for height, _ in arrivals], box.y, box.bottom)
        for (_, arc), level in zip(arrivals, levels, strict=True):
            entries[arc] = level
    return entries


def _within(wanted: list[float], top: float, bottom: float) -> list[float]:
    """Return ascending heights within a box's side, close to those wanted."""
    margin = min(_ENTRY_MARGIN, (bottom - top) / 4)
    low, high = top + margin, bottom - margin
    distance = min(_ENTRY_SPACING, (high - low) / max(1, len(wanted) - 1))
    high -= (len(wanted) - 1) * distance
    return [
        min(max(level - i * distance, low), high) + i * distance
        for i, level in enumerate(apart(wanted, distance))
    ]

"""Heights of vertices in a layered drawing, without overlaps.

Brandes and Köpf, "Fast and simple horizontal coordinate assignment" (2001), with a block compaction that
avoids the error in the published version. Vertices are aligned with their median neighbours four times, from
both sides and both ends. The result is the mean of the two middle positions. Layers are columns here, so the
paper's x is the height.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from slicemill.explain.layout_layers import Layered
from slicemill.explain.layout_order import Order

Heights = dict[int, float]


def heights(graph: Layered, order: Order, size: Sequence[float], gap: float) -> Heights:
    """Return the middle of each vertex, relative to the drawing's top."""
    forbidden = _conflicts(graph, order)
    answers: list[tuple[Heights, bool]] = []
    for rightwards in (True, False):
        for downwards in (True, False):
            layers = [layer if downwards else layer[::-1] for layer in (order if rightwards else order[::-1])]
            neighbours = graph.left if rightwards else graph.right
            blocks = _aligned(layers, neighbours, forbidden)
            found = _compacted(layers, blocks, size, gap)
            answers.append((found if downwards else {v: -y for v, y in found.items()}, downwards))
    return _balanced(answers, size)


def _conflicts(graph: Layered, order: Order) -> set[tuple[int, int]]:
    """Return the arcs that cross inner segments of long arcs.

    Long arcs stay straight, so the arcs that cross them are not aligned.
    """
    found: set[tuple[int, int]] = set()
    for layer, following in pairwise(order):
        place = {v: i for i, v in enumerate(following)}
        arcs = [(i, place[w], v, w) for i, v in enumerate(layer) for w in graph.right[v]]
        inner = [(i, j) for i, j, v, w in arcs if graph.is_bend(v) and graph.is_bend(w)]
        for i, j, v, w in arcs:
            if not (graph.is_bend(v) and graph.is_bend(w)) and any((i - a) * (j - b) < 0 for a, b in inner):
                found |= {(v, w), (w, v)}
    return found


def _aligned(
    layers: Order, neighbours: Sequence[Sequence[int]], forbidden: set[tuple[int, int]]
) -> dict[int, int]:
    """Return the first vertex of each vertex's block.

    The vertices of a block are drawn on a straight line.
    """
    root = {v: v for layer in layers for v in layer}
    for before, layer in pairwise(layers):
        place = {v: i for i, v in enumerate(before)}
        reached = -1
        for vertex in layer:
            near = sorted(neighbours[vertex], key=lambda n: place[n])
            for candidate in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                free = root[vertex] == vertex and place[candidate] > reached
                if free and (vertex, candidate) not in forbidden:
                    root[vertex] = root[candidate]
                    reached = place[candidate]
    return root


def _compacted(layers: Order, root: dict[int, int], size: Sequence[float], gap: float) -> Heights:
    """Place blocks as close together as sizes allow.

    Blocks with room are then moved towards the next block.
    """
    after: dict[int, dict[int, float]] = {block: {} for block in root.values()}
    waits = dict.fromkeys(after, 0)
    for layer in layers:
        for v, w in pairwise(layer):
            distance = (size[v] + size[w]) / 2 + gap
            followers = after[root[v]]
            waits[root[w]] += root[w] not in followers
            followers[root[w]] = max(distance, followers.get(root[w], 0.0))
    ready = [block for block, count in waits.items() if count == 0]
    place = dict.fromkeys(after, 0.0)
    done: list[int] = []
    while ready:
        block = ready.pop()
        done.append(block)
        for follower, distance in after[block].items():
            place[follower] = max(place[follower], place[block] + distance)
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    for block in reversed(done):
        if after[block]:
            room = min(place[follower] - distance for follower, distance in after[block].items())
            place[block] = max(place[block], room)
    return {vertex: place[block] for vertex, block in root.items()}


def _balanced(answers: list[tuple[Heights, bool]], size: Sequence[float]) -> Heights:
    """Align the four solutions and average the middle two per vertex.

    They are aligned to the ends of the smallest one.
    """

    def ends(found: Heights) -> tuple[float, float]:
        return (
            min((y - size[v] / 2 for v, y in found.items()), default=0.0),
            max((y + size[v] / 2 for v, y in found.items()), default=0.0),
        )

    spans = [ends(found) for found, _ in answers]
    top, bottom = min(spans, key=lambda span: span[1] - span[0])
    shifts = [
        top - span[0] if downwards else bottom - span[1]
        for span, (_, downwards) in zip(spans, answers, strict=True)
    ]
    result: Heights = {}
    for vertex in answers[0][0]:
        places = sorted(found[vertex] + shift for (found, _), shift in zip(answers, shifts, strict=True))
        result[vertex] = (places[1] + places[2]) / 2
    first = ends(result)[0]
    return {vertex: y - first for vertex, y in result.items()}

"""Order of vertices within each layer, with few crossings of arcs.

Barycentre and median sweeps with transpositions (Gansner et al. 1993). The initial order has no crossings if
the graph is a tree.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from itertools import pairwise

from slicemill.explain.layout_layers import Layered

Order = list[list[int]]
Neighbours = Sequence[Sequence[int]]

_SWEEPS = 24
_PATIENCE = 6  # sweeps without improvement before giving up


def ordered(graph: Layered) -> Order:
    """Order the vertices of each layer, preferring their given order."""
    sources = [vertex for vertex in range(graph.real) if not graph.left[vertex]]
    best = _walked(graph, sources)
    fewest = crossings(best, graph.right)
    for start in (best, _walked(graph, sources[::-1])):
        if fewest:
            order, count = _swept(graph, start)
            if count < fewest:
                best, fewest = order, count
    return best


def crossings(order: Order, right: Neighbours) -> int:
    """Count the crossings of arcs between neighbouring layers."""
    return sum(
        _crossings_between(layer, {v: i for i, v in enumerate(following)}, right)
        for layer, following in pairwise(order)
    )


def _crossings_between(layer: Sequence[int], place: dict[int, int], right: Neighbours) -> int:
    count = 0
    passed: list[int] = []
    for vertex in layer:
        ends = sorted(place[target] for target in right[vertex])
        for end in ends:
            count += len(passed) - bisect_right(passed, end)
        for end in ends:
            insort(passed, end)
    return count


def _walked(graph: Layered, starts: Sequence[int]) -> Order:
    """Order layers by a walk from the sources, inputs first, then consumers.

    Each subtree is completed before the next one, so trees have no crossings.
    """
    layer_of = {v: i for i, layer in enumerate(graph.layers) for v in layer}
    order: Order = [[] for _ in graph.layers]
    seen: set[int] = set()
    for start in starts:
        waiting = [start]
        while waiting:
            vertex = waiting.pop()
            if vertex in seen:
                continue
            seen.add(vertex)
            order[layer_of[vertex]].append(vertex)
            waiting += [*reversed(graph.right[vertex]), *reversed(graph.left[vertex])]
    return order


def _swept(graph: Layered, start: Order) -> tuple[Order, int]:
    order = [list(layer) for layer in start]
    best, fewest = order, crossings(order, graph.right)
    since = 0
    for sweep in range(_SWEEPS):
        if fewest == 0 or since > _PATIENCE:
            break
        rightwards = sweep % 2 == 0
        weight = _median if sweep % 4 >= 2 else _mean
        order = [list(layer) for layer in order]
        steps = range(1, len(order)) if rightwards else range(len(order) - 2, -1, -1)
        for index in steps:
            fixed = order[index - 1 if rightwards else index + 1]
            neighbours = graph.left if rightwards else graph.right
            order[index] = _sorted(order[index], {v: i for i, v in enumerate(fixed)}, neighbours, weight)
        _transpose(order, graph)
        count = crossings(order, graph.right)
        since += 1
        if count < fewest:
            best, fewest, since = order, count, 0
    return best, fewest


def _mean(places: list[int]) -> float:
    return sum(places) / len(places)


def _median(places: list[int]) -> float:
    places = sorted(places)
    middle = len(places) // 2
    return places[middle] if len(places) % 2 else (places[middle - 1] + places[middle]) / 2


def _sorted(
    layer: list[int], place: dict[int, int], neighbours: Neighbours, weight: Callable[[list[int]], float]
) -> list[int]:
    """Sort a layer by its neighbours' weights.

    Vertices without neighbours keep their position.
    """
    weights = {v: weight([place[n] for n in neighbours[v]]) for v in layer if neighbours[v]}
    movable = iter(sorted(weights, key=lambda v: weights[v]))
    return [next(movable) if v in weights else v for v in layer]


def _transpose(order: Order, graph: Layered) -> None:
    """Swap adjacent vertices while that removes crossings."""
    places = [{v: i for i, v in enumerate(layer)} for layer in order]
    improved = True
    while improved:
        improved = False
        for index, layer in enumerate(order):
            sides = []
            if index > 0:
                sides.append((graph.left, places[index - 1]))
            if index + 1 < len(order):
                sides.append((graph.right, places[index + 1]))
            for i in range(len(layer) - 1):
                v, w = layer[i], layer[i + 1]
                gain = sum(_pair_gain(side[v], side[w], place) for side, place in sides)
                if gain > 0:
                    layer[i], layer[i + 1] = w, v
                    places[index][v], places[index][w] = i + 1, i
                    improved = True


def _pair_gain(upper: Sequence[int], lower: Sequence[int], place: dict[int, int]) -> int:
    """Return the number of crossings that a swap of two vertices removes."""
    gain = 0
    for a in upper:
        for b in lower:
            gain += (place[a] > place[b]) - (place[a] < place[b])
    return gain

"""Layer assignment: the column of each node, and bends of long arcs.

First step of a layered drawing (Sugiyama, Tagawa, Toda 1981). Nodes are numbers, arcs are pairs.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

Arcs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layered:
    """A graph whose arcs connect neighbouring layers only.

    Vertices below `real` are nodes, the others bends. `paths` lists, per arc, its vertices from source to
    target. Arcs with the same source carry the same tuples and share their bends, so they branch as late as
    possible.
    """

    real: int
    layers: tuple[tuple[int, ...], ...]
    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[int, ...], ...]

    def is_bend(self, vertex: int) -> bool:
        return vertex >= self.real


def ranks(count: int, arcs: Arcs) -> list[int]:
    """Return the layer of each node: after its inputs, near its neighbours.

    >>> ranks(5, [(0, 1), (1, 2), (2, 3), (4, 3)])
    [0, 1, 2, 3, 2]
    """
    sources: list[list[int]] = [[] for _ in range(count)]
    targets: list[list[int]] = [[] for _ in range(count)]
    for source, target in arcs:
        sources[target].append(source)
        targets[source].append(target)
    order = _topological(sources, targets)
    rank = [0] * count
    for node in order:
        rank[node] = max((rank[s] + 1 for s in sources[node]), default=0)
    # Move nodes with more arcs ahead than behind to the right, e.g. a table next to its look-up.
    for node in reversed(order):
        if targets[node] and len(targets[node]) >= len(sources[node]):
            rank[node] = min(rank[t] for t in targets[node]) - 1
    # Move nodes back to the left if that was no gain, e.g. a filter next to its stream.
    for node in order:
        if sources[node] and len(sources[node]) >= len(targets[node]):
            rank[node] = max(rank[s] for s in sources[node]) + 1
    lowest = min(rank, default=0)
    return [r - lowest for r in rank]


def _topological(sources: list[list[int]], targets: list[list[int]]) -> list[int]:
    missing = [len(s) for s in sources]
    ready = deque(node for node, count in enumerate(missing) if count == 0)
    order: list[int] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for target in targets[node]:
            missing[target] -= 1
            if missing[target] == 0:
                ready.append(target)
    assert len(order) == len(sources), "a query graph has no cycle"
    return order


def layered(count: int, arcs: Arcs) -> Layered:
    """Assign nodes to layers, with bends in layers that arcs pass."""
    rank = ranks(count, arcs)
    bends: dict[tuple[int, int], int] = {}
    paths: list[tuple[int, ...]] = []
    layer_of = list(rank)
    for source, target in arcs:
        path = [source]
        for layer in range(rank[source] + 1, rank[target]):
            if (source, layer) not in bends:
                bends[source, layer] = len(layer_of)
                layer_of.append(layer)
            path.append(bends[source, layer])
        paths.append((*path, target))
    left: defaultdict[int, list[int]] = defaultdict(list)
    right: defaultdict[int, list[int]] = defaultdict(list)
    for a, b in dict.fromkeys(step for path in paths for step in pairwise(path)):
        right[a].append(b)
        left[b].append(a)
    layers: list[list[int]] = [[] for _ in range(max(layer_of, default=-1) + 1)]
    for vertex, layer in enumerate(layer_of):
        layers[layer].append(vertex)
    vertices = range(len(layer_of))
    return Layered(
        count,
        tuple(tuple(layer) for layer in layers),
        tuple(tuple(left[v]) for v in vertices),
        tuple(tuple(right[v]) for v in vertices),
        tuple(paths),
    )

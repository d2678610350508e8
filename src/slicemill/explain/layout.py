"""Layered layout of boxes and arcs, from left to right.

The layout does not depend on the queries. Each connected component is laid out in steps: assignment to
layers, which are columns of boxes (`assign_layers`), order within a layer (`order_layers`), heights
(`heights`), folding of a wide drawing into several bands below each other (`fold_layers`), and routes of
arcs. Then the components are packed into rows (`pack_rectangles`).
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

_BETWEEN_BOXES = 20.0
_BEND_SIZE = 2.0
_BETWEEN_PARTS = 52.0
_ENTRY_SPACING = 12.0
_ENTRY_MARGIN = 9.0  # distance of an arc's end from the corners of its box
_NARROWEST_GAP = 44.0
_WIDEST_GAP = 320.0
_GAP_PER_RISE = 0.14  # extra width of the gap between layers, per height difference of an arc

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Box:
    """Box of text to be placed in a drawing.

    Its arcs branch at a distance of `stub` from its right edge, which leaves room for a label.
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
    """Positions of the boxes and routes of the arcs in a drawing.

    `routes` are in the order of the given arcs. Points 1 and 2, 3 and 4, … of a route are connected by
    horizontal lines. Between these lines are curves with horizontal ends, or vertical lines if x is the same.
    `parts` are the frames of the connected components.
    """

    width: float
    height: float
    boxes: dict[str, Rectangle]
    routes: tuple[tuple[Point, ...], ...]
    parts: tuple[Rectangle, ...]


def lay_out(boxes: Sequence[Box], arcs: Sequence[tuple[str, str]], widest: float = math.inf) -> Layout:
    """Place boxes and route the arcs between them, which must not form a cycle.

    Parts wider than `widest` are folded if that makes them smaller.
    """
    parts = [_part(members, arcs, widest) for members in _split_components(boxes, arcs)]
    spots, width, height = pack_rectangles([(part.width, part.height) for part in parts], _BETWEEN_PARTS)
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
class _ComponentLayout:
    width: float
    height: float
    boxes: dict[str, Rectangle]
    routes: dict[int, tuple[Point, ...]]


def _split_components(boxes: Sequence[Box], arcs: Sequence[tuple[str, str]]) -> list[list[Box]]:
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


def _part(boxes: list[Box], all_arcs: Sequence[tuple[str, str]], widest: float) -> _ComponentLayout:
    number = {box.id: i for i, box in enumerate(boxes)}
    own = [(i, number[s], number[t]) for i, (s, t) in enumerate(all_arcs) if s in number]
    graph = assign_layers(len(boxes), [(s, t) for _, s, t in own])
    order = order_layers(graph)
    size = [box.height for box in boxes] + [_BEND_SIZE] * (len(graph.left) - len(boxes))
    flat = heights(graph, order, size, _BETWEEN_BOXES)
    fold = fold_layers(graph, order, flat, size, _columns(boxes, graph, flat), widest)
    layer_of = {v: i for i, layer in enumerate(graph.layers) for v in layer}
    placed = [
        Rectangle(fold.columns[layer_of[i]][0], fold.heights[i] - box.height / 2, box.width, box.height)
        for i, box in enumerate(boxes)
    ]
    entries = _entry_heights(graph, fold, placed)
    routes: dict[int, tuple[Point, ...]] = {}
    for (index, source, target), path, entry in zip(own, graph.paths, entries, strict=True):
        points: list[Point] = [(placed[source].right, fold.heights[source])]
        for vertex, following in pairwise(path):
            points += _branch_points(vertex, fold, layer_of[vertex])
            height = entry if following == target else fold.heights[following]
            points.append((fold.columns[layer_of[following]][0], height))
        routes[index] = (*points, (placed[target].x, entry))
    return _ComponentLayout(fold.width, fold.height, dict(zip(number, placed, strict=True)), routes)


def _branch_points(vertex: int, fold: FoldedLayout, layer: int) -> list[Point]:
    """Return the points of an arc from its vertex to the point at which it branches."""
    y = fold.heights[vertex]
    turn = fold.turns.get(vertex)
    if turn is None:
        return [(fold.columns[layer][1], y)]
    lanes = [(turn.right, y), (turn.right, turn.between), (turn.left, turn.between), (turn.left, turn.y)]
    return [*lanes, (turn.x, turn.y)]


def _columns(boxes: list[Box], graph: Layered, y: dict[int, float]) -> list[tuple[float, float]]:
    """Return the left and right edge of each layer (column of boxes).

    Steep arcs widen the gap between two layers.
    """
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


def _entry_heights(graph: Layered, fold: FoldedLayout, placed: list[Rectangle]) -> list[float]:
    """Return the height at which each arc enters its target box.

    An arc keeps the height at which it arrives, if that is within the box's side.
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
        levels = _fit_within([height for height, _ in arrivals], box.y, box.bottom)
        for (_, arc), level in zip(arrivals, levels, strict=True):
            entries[arc] = level
    return entries


def _fit_within(wanted: list[float], top: float, bottom: float) -> list[float]:
    """Return ascending heights along the left side of a box, close to the wanted heights."""
    margin = min(_ENTRY_MARGIN, (bottom - top) / 4)
    low, high = top + margin, bottom - margin
    distance = min(_ENTRY_SPACING, (high - low) / max(1, len(wanted) - 1))
    high -= (len(wanted) - 1) * distance
    return [
        min(max(level - i * distance, low), high) + i * distance
        for i, level in enumerate(keep_apart(wanted, distance))
    ]


# Assignment of nodes to layers (columns), and bends of long arcs
#
# This is the first step of a layered drawing (Sugiyama, Tagawa, Toda 1981). Nodes are numbers, arcs are
# pairs.


Arcs = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Layered:
    """Graph whose nodes are in layers, and whose arcs connect only neighbouring layers.

    Vertices below `real` are nodes, and all other vertices are bends. `paths` lists the vertices of each arc
    from source to target. Arcs with the same source carry the same tuples and share their bends, so they
    branch as late as possible.
    """

    real: int
    layers: tuple[tuple[int, ...], ...]
    left: tuple[tuple[int, ...], ...]
    right: tuple[tuple[int, ...], ...]
    paths: tuple[tuple[int, ...], ...]

    def is_bend(self, vertex: int) -> bool:
        return vertex >= self.real


def ranks(count: int, arcs: Arcs) -> list[int]:
    """Return the layer of each node, right of its inputs and near its neighbours.

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
    # Nodes with more outgoing than incoming arcs move to the right, for example a table next to its look-up.
    for node in reversed(order):
        if targets[node] and len(targets[node]) >= len(sources[node]):
            rank[node] = min(rank[t] for t in targets[node]) - 1
    # Nodes whose move did not shorten arcs move back to the left, for example a filter next to its stream.
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


def assign_layers(count: int, arcs: Arcs) -> Layered:
    """Assign nodes to layers.

    An arc gets a bend in each layer that it passes.
    """
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


# Order of vertices within each layer, with few crossings of arcs
#
# The method uses barycentre and median sweeps with transpositions (Gansner et al. 1993). The initial order
# has no crossings if the graph is a tree.


Order = list[list[int]]
Neighbours = Sequence[Sequence[int]]

_SWEEPS = 24
_PATIENCE = 6  # number of sweeps without improvement before the search ends


def order_layers(graph: Layered) -> Order:
    """Order the vertices of each layer for few crossings, close to their given order."""
    sources = [vertex for vertex in range(graph.real) if not graph.left[vertex]]
    best = _walk_order(graph, sources)
    fewest = crossings(best, graph.right)
    for start in (best, _walk_order(graph, sources[::-1])):
        if fewest:
            order, count = _sweep_layers(graph, start)
            if count < fewest:
                best, fewest = order, count
    return best


def crossings(order: Order, right: Neighbours) -> int:
    """Count the crossings of arcs between neighbouring layers."""
    return sum(
        _crossings_between(layer, {v: i for i, v in enumerate(following)}, right)
        for layer, following in pairwise(order)
    )


def _crossings_between(layer: Sequence[int], index: dict[int, int], right: Neighbours) -> int:
    count = 0
    passed: list[int] = []
    for vertex in layer:
        ends = sorted(index[target] for target in right[vertex])
        for end in ends:
            count += len(passed) - bisect_right(passed, end)
        for end in ends:
            insort(passed, end)
    return count


def _walk_order(graph: Layered, starts: Sequence[int]) -> Order:
    """Order all layers by a walk over the graph that starts at the sources.

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


def _sweep_layers(graph: Layered, start: Order) -> tuple[Order, int]:
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
            order[index] = _sort_layer(order[index], {v: i for i, v in enumerate(fixed)}, neighbours, weight)
        _transpose(order, graph)
        count = crossings(order, graph.right)
        since += 1
        if count < fewest:
            best, fewest, since = order, count, 0
    return best, fewest


def _mean(indices: list[int]) -> float:
    return sum(indices) / len(indices)


def _median(indices: list[int]) -> float:
    indices = sorted(indices)
    middle = len(indices) // 2
    return indices[middle] if len(indices) % 2 else (indices[middle - 1] + indices[middle]) / 2


def _sort_layer(
    layer: list[int], index: dict[int, int], neighbours: Neighbours, weight: Callable[[list[int]], float]
) -> list[int]:
    """Sort a layer by the positions of its vertices' neighbours.

    Vertices without neighbours keep their position.
    """
    weights = {v: weight([index[n] for n in neighbours[v]]) for v in layer if neighbours[v]}
    movable = iter(sorted(weights, key=lambda v: weights[v]))
    return [next(movable) if v in weights else v for v in layer]


def _transpose(order: Order, graph: Layered) -> None:
    """Swap adjacent vertices of a layer while that removes crossings."""
    positions = [{v: i for i, v in enumerate(layer)} for layer in order]
    improved = True
    while improved:
        improved = False
        for index, layer in enumerate(order):
            sides = []
            if index > 0:
                sides.append((graph.left, positions[index - 1]))
            if index + 1 < len(order):
                sides.append((graph.right, positions[index + 1]))
            for i in range(len(layer) - 1):
                v, w = layer[i], layer[i + 1]
                gain = sum(_pair_gain(side[v], side[w], position) for side, position in sides)
                if gain > 0:
                    layer[i], layer[i + 1] = w, v
                    positions[index][v], positions[index][w] = i + 1, i
                    improved = True


def _pair_gain(upper: Sequence[int], lower: Sequence[int], index: dict[int, int]) -> int:
    """Return the number of crossings that a swap of two vertices removes."""
    gain = 0
    for a in upper:
        for b in lower:
            gain += (index[a] > index[b]) - (index[a] < index[b])
    return gain


# Heights of vertices in a layered drawing, without overlaps
#
# The method is that of Brandes and Köpf, "Fast and simple horizontal coordinate assignment" (2001), with a
# block compaction that avoids the error in the published version. Vertices are aligned with their median
# neighbours four times, from both sides and both ends. The result is the mean of the two middle positions.
# Layers are columns here, so the paper's x is the height.


Heights = dict[int, float]


def heights(graph: Layered, order: Order, size: Sequence[float], gap: float) -> Heights:
    """Return the height of the middle of each vertex, relative to the top of the drawing."""
    forbidden = _conflicts(graph, order)
    answers: list[tuple[Heights, bool]] = []
    for rightwards in (True, False):
        for downwards in (True, False):
            layers = [layer if downwards else layer[::-1] for layer in (order if rightwards else order[::-1])]
            neighbours = graph.left if rightwards else graph.right
            blocks = _align_blocks(layers, neighbours, forbidden)
            found = _compact_blocks(layers, blocks, size, gap)
            answers.append((found if downwards else {v: -y for v, y in found.items()}, downwards))
    return _balance_heights(answers, size)


def _conflicts(graph: Layered, order: Order) -> set[tuple[int, int]]:
    """Return the arcs that cross inner segments of long arcs.

    Long arcs stay straight, so the arcs that cross them are not aligned.
    """
    found: set[tuple[int, int]] = set()
    for layer, following in pairwise(order):
        index = {v: i for i, v in enumerate(following)}
        arcs = [(i, index[w], v, w) for i, v in enumerate(layer) for w in graph.right[v]]
        inner = [(i, j) for i, j, v, w in arcs if graph.is_bend(v) and graph.is_bend(w)]
        for i, j, v, w in arcs:
            if not (graph.is_bend(v) and graph.is_bend(w)) and any((i - a) * (j - b) < 0 for a, b in inner):
                found |= {(v, w), (w, v)}
    return found


def _align_blocks(
    layers: Order, neighbours: Sequence[Sequence[int]], forbidden: set[tuple[int, int]]
) -> dict[int, int]:
    """Return for each vertex the first vertex of its block: the vertices on one straight line.

    All vertices of a block get the same height.
    """
    root = {v: v for layer in layers for v in layer}
    for before, layer in pairwise(layers):
        index = {v: i for i, v in enumerate(before)}
        reached = -1
        for vertex in layer:
            near = sorted(neighbours[vertex], key=lambda n: index[n])
            for candidate in near[(len(near) - 1) // 2 : len(near) // 2 + 1]:
                free = root[vertex] == vertex and index[candidate] > reached
                if free and (vertex, candidate) not in forbidden:
                    root[vertex] = root[candidate]
                    reached = index[candidate]
    return root


def _compact_blocks(layers: Order, root: dict[int, int], size: Sequence[float], gap: float) -> Heights:
    """Place blocks (vertices on a straight line) as close together as their sizes allow.

    A block with free space after it is then moved towards the next block.
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
    index = dict.fromkeys(after, 0.0)
    done: list[int] = []
    while ready:
        block = ready.pop()
        done.append(block)
        for follower, distance in after[block].items():
            index[follower] = max(index[follower], index[block] + distance)
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    for block in reversed(done):
        if after[block]:
            room = min(index[follower] - distance for follower, distance in after[block].items())
            index[block] = max(index[block], room)
    return {vertex: index[block] for vertex, block in root.items()}


def _balance_heights(answers: list[tuple[Heights, bool]], size: Sequence[float]) -> Heights:
    """Average the heights of four layouts: for each vertex, take the mean of the middle two.

    The four layouts align vertices from both sides and both ends. Each is shifted to the top or bottom of the
    most compact layout.
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
        indices = sorted(found[vertex] + shift for (found, _), shift in zip(answers, shifts, strict=True))
        result[vertex] = (indices[1] + indices[2]) / 2
    first = ends(result)[0]
    return {vertex: y - first for vertex, y in result.items()}


# Folding of wide drawings into bands below each other, like text into lines
#
# An arc into the next band leaves on the right side, runs back between the bands and enters on the left. Such
# arcs run in parallel lanes that are nested, so they do not cross.


_LANE = 10.0
_CLEARANCE = 18.0  # distance between the lanes of arcs and the boxes
_WORTHWHILE = 0.7  # maximum size of a folded drawing, as a share of its unfolded size
_SHAPE = 1.6

Column = tuple[float, float]


@dataclass(frozen=True, slots=True)
class BandTurn:
    """Route of an arc from one band of the drawing into the next band."""

    right: float
    between: float
    left: float
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class FoldedLayout:
    """Columns and heights of a drawing that is folded into bands, and routes of arcs between bands."""

    columns: list[Column]
    heights: dict[int, float]
    turns: dict[int, BandTurn]
    width: float
    height: float


def fold_layers(
    graph: Layered,
    order: Order,
    heights: dict[int, float],
    size: Sequence[float],
    columns: list[Column],
    limit: float,
) -> FoldedLayout:
    """Fold a drawing into bands below each other, each at most `limit` wide.

    Layers stay unfolded if folding saves too little space.
    """
    bottom = max(heights[v] + size[v] / 2 for v in heights)
    flat = FoldedLayout(columns, heights, {}, columns[-1][1], bottom)
    bands = _bands(columns, limit)
    if len(bands) < 2:
        return flat
    made = _stack_bands(graph, order, heights, size, columns, bands)
    helps = _extent(made) < _WORTHWHILE * _extent(flat)
    return made if helps else flat


def _extent(fold: FoldedLayout) -> float:
    return max(fold.width / _SHAPE, fold.height)


def _bands(columns: list[Column], limit: float) -> list[range]:
    """Return the layers (columns) of each band, a part of the drawing with limited width.

    There are as few bands as the limit allows, of about equal width.
    """
    bands = _fill_bands(columns, limit)
    for percent in range(95, 50, -5):
        narrower = _fill_bands(columns, limit * percent / 100)
        if len(narrower) > len(bands):
            break
        bands = narrower
    return bands


def _fill_bands(columns: list[Column], limit: float) -> list[range]:
    bands: list[range] = []
    first = 0
    for layer, (_, right) in enumerate(columns):
        if layer > first and right - columns[first][0] > limit:
            bands.append(range(first, layer))
            first = layer
    return [*bands, range(first, len(columns))]


def _stack_bands(
    graph: Layered,
    order: Order,
    heights: dict[int, float],
    size: Sequence[float],
    columns: list[Column],
    bands: list[range],
) -> FoldedLayout:
    ends = [[v for v in order[band[-1]] if graph.right[v]] for band in bands[:-1]]
    gaps = [columns[band[-1] + 1][0] - columns[band[-1]][1] for band in bands[:-1]]
    indent = max(len(end) * _LANE + gap for end, gap in zip(ends, gaps, strict=True))
    new_columns: list[Column] = []
    new_heights: dict[int, float] = {}
    turns: dict[int, BandTurn] = {}
    y = width = 0.0
    for number, band in enumerate(bands):
        vertices = [v for layer in band for v in order[layer]]
        top = min(heights[v] - size[v] / 2 for v in vertices)
        shift = indent - columns[band[0]][0]
        new_columns += [(columns[layer][0] + shift, columns[layer][1] + shift) for layer in band]
        new_heights.update((v, heights[v] - top + y) for v in vertices)
        if number:
            _complete_turns(graph, turns, ends[number - 1], new_heights, indent - gaps[number - 1])
        y = max(new_heights[v] + size[v] / 2 for v in vertices)
        right = new_columns[-1][1]
        width = max(width, right)
        if number < len(ends):
            end = ends[number]
            for i, vertex in enumerate(end):
                lane = (len(end) - 1 - i) * _LANE
                turns[vertex] = BandTurn(
                    right + _CLEARANCE + lane, y + _CLEARANCE + lane, i * _LANE, 0.0, 0.0
                )
            width = max(width, right + _CLEARANCE + len(end) * _LANE)
            y += 2 * _CLEARANCE + len(end) * _LANE
    return FoldedLayout(new_columns, new_heights, turns, width, y)


def _complete_turns(
    graph: Layered, turns: dict[int, BandTurn], end: list[int], heights: dict[int, float], x: float
) -> None:
    """Complete the routes of arcs into a band, at the heights of their target vertices."""
    wanted = [sum(heights[w] for w in graph.right[v]) / len(graph.right[v]) for v in end]
    for vertex, y in zip(end, keep_apart(wanted, _LANE), strict=True):
        turn = turns[vertex]
        turns[vertex] = BandTurn(turn.right, turn.between, x - turn.left, x, y)


def keep_apart(wanted: Sequence[float], distance: float) -> list[float]:
    """Return ascending values at least `distance` apart, close to the wanted values.

    Isotonic regression: neighbours that are too close are pooled around their mean.

    >>> keep_apart([0, 50, 50], 12)
    [0.0, 44.0, 56.0]
    """
    pools: list[tuple[float, int]] = []
    for i, value in enumerate(wanted):
        pools.append((value - i * distance, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (a, m), (b, n) = pools[-2:]
            pools[-2:] = [((a * m + b * n) / (m + n), m + n)]
    flat = [value for value, count in pools for _ in range(count)]
    return [float(value + i * distance) for i, value in enumerate(flat)]


# Packing of rectangles into rows, with the aspect ratio of a screen


_SCREEN_SHAPE = 1.6  # ratio of width to height

Size = tuple[float, float]


def pack_rectangles(sizes: Sequence[Size], gap: float) -> tuple[list[tuple[float, float]], float, float]:
    """Return the top left corners of packed rectangles, and the total width and height.

    Corners are in the given order.

    >>> pack_rectangles([(10, 10), (10, 10), (10, 10), (10, 10)], 2)
    ([(0.0, 0.0), (12.0, 0.0), (0.0, 12.0), (12.0, 12.0)], 22.0, 22.0)
    """
    if not sizes:
        return [], 0.0, 0.0
    widest = max(width for width, _ in sizes)
    first_rows = accumulate(width + gap for width, _ in sizes)
    limits = {max(widest, total - gap) for total in first_rows}
    tries = [_rows(sizes, gap, limit) for limit in sorted(limits)]
    return min(tries, key=lambda found: _badness(found[1], found[2]))


def _badness(width: float, height: float) -> float:
    """Return a measure of the smallest screen that would show all rectangles."""
    return max(width / _SCREEN_SHAPE, height) ** 2


def _rows(sizes: Sequence[Size], gap: float, limit: float) -> tuple[list[tuple[float, float]], float, float]:
    spots: list[tuple[float, float]] = []
    x = y = tallest = widest = 0.0
    for width, height in sizes:
        if spots and x + width > limit + 1e-9:
            x, y, tallest = 0.0, y + tallest + gap, 0.0
        spots.append((x, y))
        widest = max(widest, x + width)
        tallest = max(tallest, height)
        x += width + gap
    return spots, widest, y + tallest

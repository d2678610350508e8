"""Folding of long drawings into bands, like text into lines.

An arc into the next band leaves on the right side, runs back between the bands and enters on the left. Its
lanes are nested, so turns cause no crossings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.explain.layout_layers import Layered
from slicemill.explain.layout_order import Order

_LANE = 10.0
_CLEARANCE = 18.0  # distance between lanes and boxes
_WORTHWHILE = 0.7  # fold only if the result is smaller than this share of the unfolded size
_SHAPE = 1.6

Column = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Turn:
    """Lanes of an arc into the next band, and its end."""

    right: float
    between: float
    left: float
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Fold:
    """Columns and heights after folding, and turns between bands."""

    columns: list[Column]
    heights: dict[int, float]
    turns: dict[int, Turn]
    width: float
    height: float


def folded(
    graph: Layered,
    order: Order,
    heights: dict[int, float],
    size: Sequence[float],
    columns: list[Column],
    limit: float,
) -> Fold:
    """Fold into bands at most `limit` wide, if worthwhile."""
    bottom = max(heights[v] + size[v] / 2 for v in heights)
    flat = Fold(columns, heights, {}, columns[-1][1], bottom)
    bands = _bands(columns, limit)
    if len(bands) < 2:
        return flat
    made = _stacked(graph, order, heights, size, columns, bands)
    helps = _extent(made) < _WORTHWHILE * _extent(flat)
    return made if helps else flat


def _extent(fold: Fold) -> float:
    return max(fold.width / _SHAPE, fold.height)


def _bands(columns: list[Column], limit: float) -> list[range]:
    """Return the layers of each band.

    There are as few bands as the limit allows, of about equal width.
    """
    bands = _filled(columns, limit)
    for percent in range(95, 50, -5):
        narrower = _filled(columns, limit * percent / 100)
        if len(narrower) > len(bands):
            break
        bands = narrower
    return bands


def _filled(columns: list[Column], limit: float) -> list[range]:
    bands: list[range] = []
    first = 0
    for layer, (_, right) in enumerate(columns):
        if layer > first and right - columns[first][0] > limit:
            bands.append(range(first, layer))
            first = layer
    return [*bands, range(first, len(columns))]


def _stacked(
    graph: Layered,
    order: Order,
    heights: dict[int, float],
    size: Sequence[float],
    columns: list[Column],
    bands: list[range],
) -> Fold:
    ends = [[v for v in order[band[-1]] if graph.right[v]] for band in bands[:-1]]
    gaps = [columns[band[-1] + 1][0] - columns[band[-1]][1] for band in bands[:-1]]
    indent = max(len(end) * _LANE + gap for end, gap in zip(ends, gaps, strict=True))
    new_columns: list[Column] = []
    new_heights: dict[int, float] = {}
    turns: dict[int, Turn] = {}
    y = width = 0.0
    for number, band in enumerate(bands):
        vertices = [v for layer in band for v in order[layer]]
        top = min(heights[v] - size[v] / 2 for v in vertices)
        shift = indent - columns[band[0]][0]
        new_columns += [(columns[layer][0] + shift, columns[layer][1] + shift) for layer in band]
        new_heights.update((v, heights[v] - top + y) for v in vertices)
        if number:
            _arrive(graph, turns, ends[number - 1], new_heights, indent - gaps[number - 1])
        y = max(new_heights[v] + size[v] / 2 for v in vertices)
        right = new_columns[-1][1]
        width = max(width, right)
        if number < len(ends):
            end = ends[number]
            for i, vertex in enumerate(end):
                lane = (len(end) - 1 - i) * _LANE
                turns[vertex] = Turn(right + _CLEARANCE + lane, y + _CLEARANCE + lane, i * _LANE, 0.0, 0.0)
            width = max(width, right + _CLEARANCE + len(end) * _LANE)
            y += 2 * _CLEARANCE + len(end) * _LANE
    return Fold(new_columns, new_heights, turns, width, y)


def _arrive(
    graph: Layered, turns: dict[int, Turn], end: list[int], heights: dict[int, float], x: float
) -> None:
    """Complete the turns into a band, level with their target vertices."""
    wanted = [sum(heights[w] for w in graph.right[v]) / len(graph.right[v]) for v in end]
    for vertex, y in zip(end, apart(wanted, _LANE), strict=True):
        turn = turns[vertex]
        turns[vertex] = Turn(turn.right, turn.between, x - turn.left, x, y)


def apart(wanted: Sequence[float], distance: float) -> list[float]:
    """Return ascending values at least `distance` apart, close to the wanted values.

    Isotonic regression: neighbours that are too close are pooled around their mean.

    >>> apart([0, 50, 50], 12)
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

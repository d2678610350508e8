"""Packing of rectangles into rows with the aspect ratio of a screen."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

_SHAPE = 1.6  # width to height

Size = tuple[float, float]


def packed(sizes: Sequence[Size], gap: float) -> tuple[list[tuple[float, float]], float, float]:
    """Return the top left corners of rectangles, and the total size.

    Corners are in the given order.

    >>> packed([(10, 10), (10, 10), (10, 10), (10, 10)], 2)
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
    """Return a measure of the smallest screen that would hold the rectangles."""
    return max(width / _SHAPE, height) ** 2


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

"""Shapes and colours of a drawn query graph.

Roles differ in shape and colour. The colours are those of Okabe and Ito, which are distinct for colour-blind
readers. They are light fills under dark text with a strong outline.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.explain.layout import Rectangle
from slicemill.operators.kind import Role

INK = "#1b2733"
FAINT_INK = "#566372"
PAPER = "#ffffff"
PANEL = "#f6f8fa"
PANEL_EDGE = "#d9e0e6"
ARC = "#5b6773"
LOOKUP = "#8a6d00"
WAITS = "#b94a00"
NAMED = "#00588a"

TIP = 12.0  # length of a source's arrow tip
LID = 7.0  # height of the lid of a table's cylinder
CORNER = 9.0


@dataclass(frozen=True, slots=True)
class Look:
    """Colours of a role, and the space between its outline and text."""

    fill: str
    edge: str
    meaning: str
    left: float = 12.0
    right: float = 12.0
    top: float = 8.0


LOOKS = {
    Role.SOURCE: Look("#dcecf8", "#0072b2", "stream", right=12.0 + TIP),
    Role.TABLE: Look("#fdf3cf", "#8a6d00", "table or view", top=8.0 + 2 * LID),
    Role.STATELESS: Look("#ffffff", "#6b7783", "works tuple by tuple"),
    Role.STATEFUL: Look("#dcf3ea", "#00795c", "keeps a window or groups", left=18.0),
    Role.SINK: Look("#f9e2ef", "#a3407a", "query result", left=18.0, right=18.0),
}


def n(value: float) -> str:
    """Format a coordinate with at most one decimal.

    >>> n(12.0), n(3.14159)
    ('12', '3.1')
    """
    return f"{value:.1f}".removesuffix(".0")


def outline(role: Role, r: Rectangle) -> str:
    """Return the SVG elements of a node's box, without its text."""
    look = LOOKS[role]
    style = f'fill="{look.fill}" stroke="{look.edge}" stroke-width="1.5"'
    x, y, right, bottom = n(r.x), n(r.y), n(r.right), n(r.bottom)
    if role is Role.SOURCE:
        shoulder = n(r.right - TIP)
        path = f"M{x} {y}H{shoulder}L{right} {n(r.middle)}L{shoulder} {bottom}H{x}Z"
        return f'<path d="{path}" stroke-linejoin="round" {style}/>'
    if role is Role.TABLE:
        arc = f"{n(r.width / 2)} {n(LID)} 0 0"
        side = f"M{x} {n(r.y + LID)}A{arc} 1 {right} {n(r.y + LID)}V{n(r.bottom - LID)}"
        body = f"{side}A{arc} 1 {x} {n(r.bottom - LID)}Z"
        lid = f"M{x} {n(r.y + LID)}A{arc} 0 {right} {n(r.y + LID)}"
        return f'<path d="{body}" {style}/><path d="{lid}" {style.replace(look.fill, "none")}/>'
    radius = n(min(r.height / 2, 18.0) if role is Role.SINK else 5.0)
    box = f'<rect x="{x}" y="{y}" width="{n(r.width)}" height="{n(r.height)}" rx="{radius}" {style}/>'
    if role is Role.STATEFUL:
        bar = f"M{n(r.x + 6)} {y}V{bottom}"
        return f'{box}<path d="{bar}" stroke="{look.edge}" stroke-width="1.5"/>'
    return box


def clock(x: float, y: float) -> str:
    """Return the badge of an operator that waits for a watermark."""
    hands = f"M{n(x)} {n(y - 4.5)}V{n(y)}L{n(x + 3.2)} {n(y + 2)}"
    return (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="8" fill="{WAITS}" stroke="{PAPER}" stroke-width="1.5"/>'
        f'<path d="{hands}" fill="none" stroke="{PAPER}" stroke-width="1.6" stroke-linecap="round" '
        'stroke-linejoin="round"/>'
    )


def curve(points: tuple[tuple[float, float], ...]) -> str:
    """Return the SVG path of a route.

    It has horizontal lines, curves with horizontal ends, and vertical lines with round corners.
    """
    parts = [f"M{n(points[0][0])} {n(points[0][1])}"]
    for i in range(1, len(points) - 1, 2):
        (ax, ay), (bx, by) = points[i], points[i + 1]
        if ax == bx and ay != by:
            parts.append(_upright(points[i - 1], points[i], points[i + 1], points[i + 2]))
        elif abs(ay - by) >= 0.05:
            middle = n((ax + bx) / 2)
            parts.append(f"H{n(ax)}C{middle} {n(ay)} {middle} {n(by)} {n(bx)} {n(by)}")
    return "".join([*parts, f"H{n(points[-1][0])}"])


def _upright(*points: tuple[float, float]) -> str:
    """Return a vertical line between two horizontal lines, with round corners."""
    (before, _), (x, top), (_, bottom), (after, _) = points
    radius = min(CORNER, abs(bottom - top) / 2)
    down = radius if bottom > top else -radius
    enter = x - radius if before < x else x + radius
    leave = x - radius if after < x else x + radius
    first = f"H{n(enter)}Q{n(x)} {n(top)} {n(x)} {n(top + down)}"
    return f"{first}V{n(bottom - down)}Q{n(x)} {n(bottom)} {n(leave)} {n(bottom)}"

"""Legend of a drawn query graph, limited to symbols that occur."""

from __future__ import annotations

from slicemill.explain.layout import Rectangle
from slicemill.explain.svg_shapes import LOOKS, clock, n, outline
from slicemill.explain.svg_text import text_width, xml
from slicemill.explain.words import is_lookup_arc, role_of
from slicemill.operators.graph import QueryGraph
from slicemill.operators.kind import Role

_ICON = 34.0
_ROW = 30.0
_SIZE = 11.5
_SPACE = 26.0


def legend(graph: QueryGraph, width: float) -> tuple[str, float, float]:
    """Return the legend in rows of at most `width`, with its size."""
    entries = _entries(graph)
    parts: list[str] = []
    x = y = widest = 0.0
    for icon, words in entries:
        needed = _ICON + 9.0 + text_width(words, _SIZE)
        if x and x + needed > width:
            x, y = 0.0, y + _ROW
        text = f'<text class="legend" x="{n(_ICON + 9)}" y="14">{xml(words)}</text>'
        parts.append(f'<g transform="translate({n(x)} {n(y)})">{icon}{text}</g>')
        widest = max(widest, x + needed)
        x += needed + _SPACE
    return "".join(parts), widest, y + 20.0


def _entries(graph: QueryGraph) -> list[tuple[str, str]]:
    """Return the symbols and their meanings."""
    roles = {role_of(node) for node in graph}
    frame = Rectangle(0.0, 0.0, _ICON, 20.0)
    entries = [(outline(role, frame), LOOKS[role].meaning) for role in Role if role in roles]
    if any(node.waits_for_time for node in graph):
        entries.append((clock(_ICON / 2, 10.0), "waits for time"))
    lookups = {is_lookup_arc(graph, arc.target, arc.port) for arc in graph.arcs}
    line = f'd="M0 10H{n(_ICON)}"'
    if False in lookups:
        entries.append((f'<path class="line" {line} marker-end="url(#arrow)"/>', "tuples"))
    if True in lookups:
        entries.append((f'<path class="line lookup" {line} marker-end="url(#arrow-lookup)"/>', "looked up"))
    return entries

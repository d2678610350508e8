"""Drawing of the query graph as SVG, without external programs.

Tuples flow from left to right. Labels are wide and low, so many queries fit below each other. The tooltip of
a box or arc has its full description.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.explain.layout import Box, Layout, Rectangle, lay_out
from slicemill.explain.svg_legend import legend
from slicemill.explain.svg_shapes import (
    ARC,
    FAINT_INK,
    INK,
    LOOKS,
    LOOKUP,
    NAMED,
    PANEL,
    PANEL_EDGE,
    PAPER,
    clock,
    curve,
    n,
    outline,
)
from slicemill.explain.svg_text import MONO, SANS, text_width, wrapped, xml
from slicemill.explain.words import is_lookup_arc, port_name, role_of, words_of
from slicemill.operators.graph import Arc, Node, QueryGraph
from slicemill.operators.kind import Role

_TITLE_SIZE = 13.0
_FACT_SIZE = 10.5
_COUNT_SIZE = 9.5
_LINE = 14.0
_TITLE_LINE = 17.0
_TEXT_WIDTH = 205.0  # width at which labels are wrapped
_LINES_OF_CHIEF_FACT = 3
_LINES_PER_FACT = 2
_NARROWEST = 92.0
_MARGIN = 28.0
_WIDEST = 2000.0
_PANEL_PADDING = 16.0

_STYLE = f"""
text {{ font-family: {SANS}; fill: {INK}; }}
text.title {{ font-size: {_TITLE_SIZE}px; font-weight: 600; }}
text.name {{ font-size: {_FACT_SIZE}px; font-weight: 600; fill: {NAMED}; }}
text.fact {{ font-size: {_FACT_SIZE}px; font-family: {MONO}; white-space: pre; }}
text.count {{ font-size: {_COUNT_SIZE}px; fill: {FAINT_INK}; }}
text.legend {{ font-size: 11.5px; fill: {FAINT_INK}; }}
path.line {{ fill: none; stroke: {ARC}; stroke-width: 1.4; }}
path.lookup {{ stroke: {LOOKUP}; stroke-dasharray: 5 3.5; }}
path.touch {{ fill: none; stroke: transparent; stroke-width: 9; }}
g.arc:hover path.line {{ stroke-width: 2.8; }}
"""


def explain_svg(graph: QueryGraph) -> str:
    """Return the graph as an SVG document; equal graphs yield equal text."""
    labels = {node.id: _label(node, graph) for node in graph}
    boxes = [labels[node.id].box(node, read=bool(graph.consumers(node.id))) for node in graph]
    layout = lay_out(boxes, [(arc.source, arc.target) for arc in graph.arcs], _WIDEST)
    key, key_width, key_height = legend(graph, max(layout.width, 560.0))
    width = max(layout.width, key_width) + 2 * _MARGIN
    key_top = layout.height + 2 * _MARGIN + (_PANEL_PADDING if len(layout.parts) > 1 else 0.0)
    height = key_top + key_height + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{n(width)}" height="{n(height)}" '
        f'viewBox="0 0 {n(width)} {n(height)}" role="img" aria-labelledby="graph-title">',
        f'<title id="graph-title">{xml(_summary(graph))}</title>',
        f"<style>{_STYLE}</style>",
        f"<defs>{_arrow('arrow', ARC)}{_arrow('arrow-lookup', LOOKUP)}</defs>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        f'<g transform="translate({n(_MARGIN)} {n(_MARGIN)})">',
        *_panels(layout),
        *(_arc(arc, route, graph) for arc, route in zip(graph.arcs, layout.routes, strict=True)),
        *(_node(node, labels[node.id], layout.boxes[node.id], graph) for node in graph),
        "</g>",
        f'<g transform="translate({n(_MARGIN)} {n(key_top)})">{key}</g>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _summary(graph: QueryGraph) -> str:
    queries = len(graph.sinks)
    return f"Query graph of {queries} {'query' if queries == 1 else 'queries'}, {len(graph)} nodes"


def _arrow(name: str, colour: str) -> str:
    return (
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7.2" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.6L8 4L0 7.4Z" fill="{colour}"/></marker>'
    )


def _panels(layout: Layout) -> list[str]:
    """Return a panel behind each component if there are several."""
    if len(layout.parts) < 2:
        return []
    pad = _PANEL_PADDING
    return [
        f'<rect class="component" x="{n(r.x - pad)}" y="{n(r.y - pad)}" width="{n(r.width + 2 * pad)}" '
        f'height="{n(r.height + 2 * pad)}" rx="10" fill="{PANEL}" stroke="{PANEL_EDGE}"/>'
        for r in layout.parts
    ]


@dataclass(frozen=True, slots=True)
class _Label:
    """Lines of text in a box: title, stream names and facts."""

    role: Role
    title: tuple[str, ...]
    names: tuple[str, ...]
    facts: tuple[str, ...]

    def box(self, node: Node, read: bool) -> Box:
        look = LOOKS[self.role]
        widths = [text_width(line, _TITLE_SIZE, bold=True) for line in self.title]
        widths += [text_width(name, _FACT_SIZE, bold=True) for name in self.names]
        widths += [text_width(fact, _FACT_SIZE, mono=True) for fact in self.facts]
        width = max(_NARROWEST, max(widths) + look.left + look.right)
        lines = _LINE * (len(self.names) + len(self.facts)) + _TITLE_LINE * len(self.title)
        height = look.top + lines + 8.0
        stub = text_width(_count(node), _COUNT_SIZE) + 10.0 if read else 0.0
        return Box(node.id, round(width), max(height, _LINE * len(node.inputs) + _LINE), round(stub))


def _count(node: Node) -> str:
    columns = len(node.schema)
    return f"{columns} col" if columns == 1 else f"{columns} cols"


def _label(node: Node, graph: QueryGraph) -> _Label:
    words = words_of(node, graph)
    role = role_of(node)
    named = role not in (Role.SOURCE, Role.TABLE)
    streams = [name for name, made_by in graph.streams.items() if made_by == node.id and named]
    names = [line for name in streams for line in wrapped(f"stream {name}", _FACT_SIZE, _TEXT_WIDTH, 2)]
    facts: list[str] = []
    for index, (what, text) in enumerate(words.facts):
        shown = text if index == 0 or what in ("compute", "windows") else f"{what} {text}"
        lines = _LINES_PER_FACT if index else _LINES_OF_CHIEF_FACT
        facts += wrapped(shown, _FACT_SIZE, _TEXT_WIDTH, lines, mono=True)
    title = wrapped(words.headline, _TITLE_SIZE, _TEXT_WIDTH, 2)
    return _Label(role, tuple(title), tuple(names), tuple(facts))


def _node(node: Node, label: _Label, r: Rectangle, graph: QueryGraph) -> str:
    look = LOOKS[label.role]
    x, y = r.x + look.left, r.y + look.top - 6.0
    parts = [
        f'<g class="node {label.role.value}" data-id="{xml(node.id)}">',
        f"<title>{xml(_story(node, graph))}</title>",
        outline(label.role, r),
    ]
    for line in label.title:
        y += _TITLE_LINE
        parts.append(f'<text class="title" x="{n(x)}" y="{n(y)}">{xml(line)}</text>')
    y += 1.0
    for kind, lines in (("name", label.names), ("fact", label.facts)):
        for line in lines:
            y += _LINE
            parts.append(f'<text class="{kind}" x="{n(x)}" y="{n(y)}">{xml(line)}</text>')
    if node.waits_for_time:
        parts.append(clock(r.right - 3.0, r.y + 1.0))
    if graph.consumers(node.id):
        place = f'x="{n(r.right + 5)}" y="{n(r.middle - 4)}"'
        parts.append(f'<text class="count" {place}>{_count(node)}</text>')
    return "".join([*parts, "</g>"])


def _story(node: Node, graph: QueryGraph) -> str:
    """Return the tooltip of a node with all its facts and columns."""
    words = words_of(node, graph)
    lines = [words.headline, *(f"{what}: {text}" for what, text in words.facts)]
    if node.waits_for_time:
        lines.append("waits for the watermarks of its inputs")
    lines.append(f"columns: {', '.join(str(column) for column in node.schema)}")
    return "\n".join(lines)


def _arc(arc: Arc, route: tuple[tuple[float, float], ...], graph: QueryGraph) -> str:
    lookup = is_lookup_arc(graph, arc.target, arc.port)
    alias = port_name(graph[arc.target], arc.port)
    port = f"input {arc.port + 1} ({alias})" if alias else f"input {arc.port + 1}"
    story = f"{arc.source} → {arc.target}, {port}\n{', '.join(str(column) for column in arc.schema)}"
    path = curve(route)
    kind, arrow = ("line lookup", "arrow-lookup") if lookup else ("line", "arrow")
    return (
        f'<g class="arc" data-source="{xml(arc.source)}" data-target="{xml(arc.target)}" '
        f'data-port="{arc.port}"><title>{xml(story)}</title><path class="touch" d="{path}"/>'
        f'<path class="{kind}" d="{path}" marker-end="url(#{arrow})"/></g>'
    )

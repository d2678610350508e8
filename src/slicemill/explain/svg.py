"""Drawing of the query graph as SVG, without external programs.

Tuples flow from left to right. Labels are wide and low, so many queries fit below each other. The tooltip
of a box or arc has its full description.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from xml.sax.saxutils import escape

from slicemill.explain.layout import Box, Layout, Rectangle, lay_out
from slicemill.explain.text import describe_node, is_lookup_arc, port_name, role_of
from slicemill.operators.graph import Arc, Node, QueryGraph
from slicemill.operators.protocol import Role

# Legend of a drawn query graph
#
# The legend has only the symbols that occur in the drawing.


_ICON = 34.0
_ROW = 30.0
_SIZE = 11.5
_SPACE = 26.0


def legend(graph: QueryGraph, width: float) -> tuple[str, float, float]:
    """Return the legend in rows of at most `width`, with its width and height."""
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
    """Return the symbols of the legend and their meanings."""
    roles = {role_of(node) for node in graph}
    frame = Rectangle(0.0, 0.0, _ICON, 20.0)
    entries = [(outline(role, frame), LOOKS[role].meaning) for role in Role if role in roles]
    if any(node.waits_for_time for node in graph):
        entries.append((clock(_ICON / 2, 10.0), "waits for watermark"))
    lookups = {is_lookup_arc(graph, arc.target, arc.port) for arc in graph.arcs}
    line = f'd="M0 10H{n(_ICON)}"'
    if False in lookups:
        entries.append((f'<path class="line" {line} marker-end="url(#arrow)"/>', "rows"))
    if True in lookups:
        entries.append((f'<path class="line lookup" {line} marker-end="url(#arrow-lookup)"/>', "lookup"))
    return entries


# Shapes and colours of a drawn query graph
#
# Roles differ in shape and colour. The colours are those of Okabe and Ito, which are distinct for
# colour-blind readers. They are light fills under dark text with a strong outline.


INK = "#1b2733"
FAINT_INK = "#566372"
PAPER = "#ffffff"
PANEL = "#f6f8fa"
PANEL_EDGE = "#d9e0e6"
ARC = "#5b6773"
LOOKUP = "#8a6d00"
WAITS = "#b94a00"
NAMED = "#00588a"

TIP = 12.0  # length of the arrow tip on the box of a source
LID = 7.0  # height of the lid on the cylinder of a table
CORNER = 9.0


@dataclass(frozen=True, slots=True)
class RoleStyle:
    """Colours of a node's role, and the space between the outline of its box and the text."""

    fill: str
    edge: str
    meaning: str
    left: float = 12.0
    right: float = 12.0
    top: float = 8.0


LOOKS = {
    Role.SOURCE: RoleStyle("#dcecf8", "#0072b2", "stream", right=12.0 + TIP),
    Role.TABLE: RoleStyle("#fdf3cf", "#8a6d00", "table or view", top=8.0 + 2 * LID),
    Role.STATELESS: RoleStyle("#ffffff", "#6b7783", "stateless operator"),
    Role.STATEFUL: RoleStyle("#dcf3ea", "#00795c", "stateful operator", left=18.0),
    Role.SINK: RoleStyle("#f9e2ef", "#a3407a", "query result", left=18.0, right=18.0),
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
    """Return the clock symbol of an operator that waits for a watermark."""
    hands = f"M{n(x)} {n(y - 4.5)}V{n(y)}L{n(x + 3.2)} {n(y + 2)}"
    return (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="8" fill="{WAITS}" stroke="{PAPER}" stroke-width="1.5"/>'
        f'<path d="{hands}" fill="none" stroke="{PAPER}" stroke-width="1.6" stroke-linecap="round" '
        'stroke-linejoin="round"/>'
    )


def curve(points: tuple[tuple[float, float], ...]) -> str:
    """Return the SVG path of an arc.

    The path has horizontal lines, curves with horizontal ends, and vertical lines with round corners.
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


# Text in SVG drawings: width, line breaks and XML escapes


MONO = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
SANS = "system-ui, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif"

# Widths of characters in em. The viewer chooses the font, so the widths are those of the wide DejaVu Sans.
_MONO_EM = 0.602
_CLASSES = {
    "ijl|'": 0.28,
    " .,:;!Ift": 0.36,
    'r()[]{}/\\-"': 0.42,
    "cksvxyz_?*": 0.56,
    "mw%@MW": 0.95,
    "<>=+~^": 0.84,
    "ABCEFKLPRSTVXYZ&": 0.69,
    "DGHNOQU": 0.78,
}
_SANS_EM = {char: width for chars, width in _CLASSES.items() for char in chars}
_BOLD = 1.1

# A line may break at a space, but not within a string constant.
_PIECES = re.compile(r"(?:'(?:[^']|'')*'|\S)+")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml(text: str) -> str:
    """Escape text for XML content and for attributes in double quotes.

    Invalid characters are replaced.

    >>> xml('a < "b" & \\x1b')
    'a &lt; &quot;b&quot; &amp; \\ufffd'
    """
    return escape(_NOT_XML.sub("\ufffd", text), {'"': "&quot;"})


def text_width(text: str, size: float, mono: bool = False, bold: bool = False) -> float:
    """Estimate the width of a line of text; rather too high than too low."""
    em = sum(_em(char, mono) for char in text)
    return em * size * (_BOLD if bold and not mono else 1.0)


def _em(char: str, mono: bool) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    return _MONO_EM if mono else _SANS_EM.get(char, 0.65)


def wrap_text(text: str, size: float, width: float, lines: int, mono: bool = False) -> list[str]:
    """Break text into at most `lines` lines, each at most `width` wide.

    An ellipsis marks omitted text.

    >>> wrap_text("price > 1000 AND sellerID = 'x y'", 10, 120, 3, mono=True)
    ['price > 1000 AND', "sellerID = 'x y'"]
    >>> wrap_text("a_name_that_is_much_too_long", 10, 60, 1, mono=True)
    ['a_name_t…']
    """

    def fits(line: str) -> bool:
        return text_width(line, size, mono) <= width

    made: list[str] = []
    for piece in _PIECES.findall(text):
        if made and fits(f"{made[-1]} {piece}"):
            made[-1] = f"{made[-1]} {piece}"
            continue
        while not fits(piece):
            cut = max((i for i in range(1, len(piece)) if fits(piece[:i])), default=1)
            made.append(piece[:cut])
            piece = piece[cut:]
        made.append(piece)
    if len(made) <= lines:
        return made
    last = made[lines - 1]
    while last and not fits(f"{last}…"):
        last = last[:-1]
    return [*made[: lines - 1], f"{last.rstrip(' ,(')}…"]


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
    """Return the graph as an SVG document.

    Equal graphs yield equal text.
    """
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
    """Return a background panel for each connected component if there are several components."""
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
    """Lines of text in a node's box: title, stream names and properties."""

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
    words = describe_node(node, graph)
    role = role_of(node)
    named = role not in (Role.SOURCE, Role.TABLE)
    streams = [name for name, made_by in graph.streams.items() if made_by == node.id and named]
    names = [line for name in streams for line in wrap_text(f"stream {name}", _FACT_SIZE, _TEXT_WIDTH, 2)]
    facts: list[str] = []
    for index, (what, text) in enumerate(words.facts):
        shown = text if index == 0 or what in ("compute", "windows") else f"{what} {text}"
        lines = _LINES_PER_FACT if index else _LINES_OF_CHIEF_FACT
        facts += wrap_text(shown, _FACT_SIZE, _TEXT_WIDTH, lines, mono=True)
    title = wrap_text(words.headline, _TITLE_SIZE, _TEXT_WIDTH, 2)
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
        index = f'x="{n(r.right + 5)}" y="{n(r.middle - 4)}"'
        parts.append(f'<text class="count" {index}>{_count(node)}</text>')
    return "".join([*parts, "</g>"])


def _story(node: Node, graph: QueryGraph) -> str:
    """Return the tooltip of a node, with all its properties and columns."""
    words = describe_node(node, graph)
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

"""Drawing of one graph of a model in the paper's notation (C19).

The letters are S, M, F, T, Ac, A, P, W. Data flow from left to right. Only values that are stored for the
next slide flow back, and enter their store from the right. The tooltip of a box or arc has its description.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slicemill.explain.layout import Box, Rectangle, lay_out
from slicemill.explain.model_dimensions import Dimension, dimensions, shown
from slicemill.explain.model_shapes import BADGE, LID, TIP, badge, ink_of, outline
from slicemill.explain.svg_shapes import curve, n
from slicemill.explain.svg_text import text_width, wrapped, xml
from slicemill.model.classify import CoreKind
from slicemill.model.graphs.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op

SIZE = 10.5
_LINE = 14.0
_TEXT_WIDTH = 250.0
_LINES = 3
_WIDEST = 2000.0

LETTERS = {
    Op.S: "S: what has arrived",
    Op.W: "W: a store",
    Op.F: "F: filter, splits a vector",
    Op.M: "M: merge, joins vectors",
    Op.T: "T: transform, each value",
    Op.AC: "Ac: accumulate into one",
    Op.A: "A: search for an element",
    Op.P: "P: permute",
    Op.Z: "Z: pair two vectors",
}
PHASES = {
    InstancePhase.INITIAL: "for the first window",
    InstancePhase.SUCCESSIVE: "at later slides",
    InstancePhase.BOTH: "from the first window on",
}

# Returns the class by which a node is drawn, and further lines of its tooltip.
DescribeNode = Callable[[ModelNode], tuple[CoreKind | None, list[str]]]


@dataclass(frozen=True, slots=True)
class Picture:
    """An SVG group and its size."""

    svg: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _DrawnBox:
    """A node of a model with its lines of text."""

    node: ModelNode
    lines: tuple[str, ...]
    size: str

    @property
    def lid(self) -> float:
        """Return the offset of text below the lid of a cylinder."""
        return LID if self.node.op is Op.W else 0.0

    @property
    def box(self) -> Box:
        tips = 2 * TIP + 8
        text = max((text_width(line, SIZE, mono=True) for line in self.lines), default=-6.0)
        width = 2 * BADGE + 6 + text + tips
        height = max(2 * BADGE + 12.0, _LINE * len(self.lines) + 14.0) + 2 * self.lid
        stub = round(text_width(self.size, 9.5) + 10) if self.size else 0.0
        return Box(self.node.id, round(width), height, stub)


def picture(graph: ModelGraph, describe: DescribeNode) -> Picture:
    """Draw a graph."""
    sizes = dimensions(graph)
    read = {edge.src for edge in graph.edges}
    drawn = [
        _DrawnBox(
            node,
            tuple(wrapped(node.label, SIZE, _TEXT_WIDTH, _LINES, mono=True)) if node.label else (),
            _size(sizes[node.id]) if node.id in read else "",
        )
        for node in graph.nodes
    ]
    back = [_goes_back(edge, graph) for edge in graph.edges]
    arcs = [(e.dst, e.src) if turned else (e.src, e.dst) for e, turned in zip(graph.edges, back, strict=True)]
    layout = lay_out([entry.box for entry in drawn], arcs, _WIDEST)
    parts = []
    for edge, turned, route in zip(graph.edges, back, layout.routes, strict=True):
        parts.append(_arc(edge, curve(route), turned))
    parts += [_node(entry, layout.boxes[entry.node.id], describe) for entry in drawn]
    return Picture("\n".join(parts), layout.width, layout.height)


def _goes_back(edge: ModelEdge, graph: ModelGraph) -> bool:
    """Return True if an edge feeds a store from its own content."""
    if graph[edge.dst].op is not Op.W:
        return False
    reached, waiting = set[str](), [edge.dst]
    while waiting:
        current = waiting.pop()
        new = {e.dst for e in graph.edges if e.src == current and e.dst != edge.dst} - reached
        reached |= new
        waiting += new
    return edge.src in reached


def _size(outputs: list[Dimension]) -> str:
    return " | ".join(shown(output) for output in outputs)


def _node(entry: _DrawnBox, r: Rectangle, describe: DescribeNode) -> str:
    kind, story = describe(entry.node)
    ink = ink_of(kind)
    lines = [LETTERS[entry.node.op], *([entry.node.label] if entry.node.label else []), *story]
    parts = [
        f'<g class="node {"shared" if kind is None else kind.value.lower()}" data-id="{xml(entry.node.id)}">',
        f"<title>{xml(chr(10).join(lines))}</title>",
        outline(entry.node, kind, r),
        badge(entry.node.op.value, r.x + TIP + BADGE, r.middle + entry.lid, ink.edge),
    ]
    x = r.x + TIP + 2 * BADGE + 6
    y = r.middle + entry.lid - _LINE * len(entry.lines) / 2 - 3.5
    for line in entry.lines:
        y += _LINE
        parts.append(f'<text class="fact" x="{n(x)}" y="{n(y)}">{xml(line)}</text>')
    if entry.size:
        place = f'x="{n(r.right + 5)}" y="{n(r.middle - 4)}"'
        parts.append(f'<text class="size" {place}>{xml(entry.size)}</text>')
    return "".join([*parts, "</g>"])


def _arc(edge: ModelEdge, path: str, turned: bool) -> str:
    """Draw an edge; `turned` if its path was laid out in reverse."""
    story = f"{edge.src} → {edge.dst}, {PHASES[edge.phase]}"
    arrow = "marker-start" if turned else "marker-end"
    return (
        f'<g class="arc" data-source="{xml(edge.src)}" data-target="{xml(edge.dst)}" '
        f'data-phase="{edge.phase}"><title>{xml(story)}</title><path class="touch" d="{path}"/>'
        f'<path class="line {edge.phase}{" kept" * turned}" d="{path}" {arrow}="url(#arrow)"/></g>'
    )

"""A model as a drawing in the paper's letters (C19): S, M, F, T, Ac, A, P, W.

A store stands twice, so that everything flows from left to right: at the left as it was before the slide, at
the right as it is for the next one. Every box and arc tells its story as a tooltip.
"""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.model.classify import Kind
from slicemill.model.graph import Edge, Graph, Node, Op, Phase
from slicemill.model.kept import kept_graph
from slicemill.model.model import Model
from slicemill.plan.layout import Box, Rectangle, lay_out
from slicemill.plan.model_dimensions import Dimension, dimensions, shown
from slicemill.plan.model_shapes import BADGE, INKS, LID, PLAIN, TIP, badge, ink_of, outline, shape
from slicemill.plan.svg_shapes import ARC, FAINT_INK, INK, PAPER, curve, n
from slicemill.plan.svg_text import MONO, SANS, text_width, wrapped, xml

_SIZE = 10.5
_TITLE = 15.0
_LINE = 14.0
_TEXT_WIDTH = 250.0
_LINES = 3
_MARGIN = 28.0
_WIDEST = 2000.0
_ICON = 40.0
_ROW = 30.0

_LETTERS = {
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
_PHASES = {
    Phase.INITIAL: "for the first window",
    Phase.SUCCESSIVE: "at later slides",
    Phase.BOTH: "from the first window on",
}

_STYLE = f"""
text {{ font-family: {SANS}; fill: {INK}; }}
text.title {{ font-size: {_TITLE}px; font-weight: 600; }}
text.note {{ font-size: 12px; fill: {FAINT_INK}; }}
text.fact {{ font-size: {_SIZE}px; font-family: {MONO}; white-space: pre; }}
text.letter {{ font-size: 12px; font-weight: 700; fill: {PAPER}; }}
text.size {{ font-size: 9.5px; fill: {FAINT_INK}; }}
text.legend {{ font-size: 11.5px; fill: {FAINT_INK}; }}
path.line {{ fill: none; stroke: {ARC}; stroke-width: 1.3; }}
path.successive {{ stroke-dasharray: 5 3.5; }}
path.initial {{ stroke-dasharray: 1.5 3; stroke-linecap: round; }}
path.touch {{ fill: none; stroke: transparent; stroke-width: 9; }}
"""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A box: a node, or one of the two sides of a store."""

    id: str
    node: Node
    lines: tuple[str, ...]
    size: str

    @property
    def lid(self) -> float:
        """What stands in a cylinder stands below its lid."""
        return LID if self.node.op is Op.W else 0.0

    @property
    def box(self) -> Box:
        tips = 2 * TIP + 8
        text = max((text_width(line, _SIZE, mono=True) for line in self.lines), default=-6.0)
        width = 2 * BADGE + 6 + text + tips
        height = max(2 * BADGE + 12.0, _LINE * len(self.lines) + 14.0) + 2 * self.lid
        return Box(
            self.id, round(width), height, round(text_width(self.size, 9.5) + 10) if self.size else 0.0
        )


def model_svg(name: str, model: Model) -> str:
    """The graph of a model as an SVG document. The same model always gives the same text."""
    graph = kept_graph(model)
    drawn = _boxes(graph)
    arcs = [_ends(edge, graph) for edge in graph.edges]
    layout = lay_out([entry.box for entry in drawn], arcs, _WIDEST)
    heading = _heading(name, model)
    key, key_width, key_height = _legend(graph, model, max(layout.width, 640.0))
    title_width = max(text_width(heading[0], _TITLE, bold=True), *(text_width(t, 12.0) for t in heading[1:]))
    width = max(layout.width, key_width, title_width) + 2 * _MARGIN
    top = _MARGIN + 20.0 * len(heading) + 8.0
    key_top = top + layout.height + _MARGIN
    height = key_top + key_height + _MARGIN
    found = model.classification
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{n(width)}" height="{n(height)}" '
        f'viewBox="0 0 {n(width)} {n(height)}" role="img" aria-labelledby="model-title">',
        f'<title id="model-title">{xml(f"Model {name}, {found.kind}: {found.reason}")}</title>',
        f"<style>{_STYLE}</style>",
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.2" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.6L8 4L0 7.4Z" fill="{ARC}"/>'
        "</marker></defs>",
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        *(
            f'<text class="{"note" if row else "title"}" x="{n(_MARGIN)}" y="{n(_MARGIN + 12 + 20 * row)}">'
            f"{xml(text)}</text>"
            for row, text in enumerate(heading)
        ),
        f'<g transform="translate({n(_MARGIN)} {n(top)})">',
        *(_arc(edge, curve(route)) for edge, route in zip(graph.edges, layout.routes, strict=True)),
        *(_node(entry, layout.boxes[entry.id], model) for entry in drawn),
        "</g>",
        f'<g transform="translate({n(_MARGIN)} {n(key_top)})">{key}</g>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _heading(name: str, model: Model) -> list[str]:
    found = model.classification
    called = f"{name}({', '.join(model.parameters)}) = {model.text}"
    (called_line,) = wrapped(called, _TITLE, 900.0, 1)
    return [called_line, *wrapped(f"{found.kind}: {found.reason}", 12.0, 900.0, 3)]


def _boxes(graph: Graph) -> list[_Drawn]:
    sizes = dimensions(graph)
    read = {edge.src for edge in graph.edges}
    written = {edge.dst for edge in graph.edges}
    drawn = []
    for node in graph.nodes:
        lines = tuple(wrapped(node.label, _SIZE, _TEXT_WIDTH, _LINES, mono=True)) if node.label else ()
        size = _size(sizes[node.id]) if node.id in read else ""
        if node.op is not Op.W:
            drawn.append(_Drawn(node.id, node, lines, size))
            continue
        if node.id in read:
            drawn.append(_Drawn(node.id, node, (*lines, "as it was"), size))
        if node.id in written:
            drawn.append(_Drawn(_after(node.id), node, (*lines, "as it will be"), ""))
    return drawn


def _after(name: str) -> str:
    return f"{name}'"


def _ends(edge: Edge, graph: Graph) -> tuple[str, str]:
    return edge.src, _after(edge.dst) if graph[edge.dst].op is Op.W else edge.dst


def _size(outputs: list[Dimension]) -> str:
    return " | ".join(shown(output) for output in outputs)


def _kind(node: Node, model: Model) -> Kind | None:
    return None if node.core < 0 else model.classes[node.core].kind


def _node(entry: _Drawn, r: Rectangle, model: Model) -> str:
    kind = _kind(entry.node, model)
    ink = ink_of(kind)
    parts = [
        f'<g class="node {"shared" if kind is None else kind.value.lower()}" data-id="{xml(entry.id)}">',
        f"<title>{xml(_story(entry.node, model))}</title>",
        outline(entry.node, kind, r),
        badge(entry.node.op.value, r.x + TIP + BADGE, r.middle + entry.lid, ink.edge),
    ]
    x = r.x + TIP + 2 * BADGE + 6
    y = r.middle + entry.lid - _LINE * len(entry.lines) / 2 - 3.5
    for line in entry.lines:
        y += _LINE
        parts.append(f'<text class="fact" x="{n(x)}" y="{n(y)}">{xml(line)}</text>')
    if entry.size:
        parts.append(
            f'<text class="size" x="{n(r.right + 5)}" y="{n(r.middle - 4)}">{xml(entry.size)}</text>'
        )
    return "".join([*parts, "</g>"])


def _story(node: Node, model: Model) -> str:
    """All there is to say about a node."""
    lines = [_LETTERS[node.op]] + ([node.label] if node.label else [])
    if node.core >= 0:
        found = model.classes[node.core]
        lines += [f"for {model.cores[node.core].symbol}", f"{found.kind}: {found.reason}"]
    return "\n".join(lines)


def _arc(edge: Edge, path: str) -> str:
    story = f"{edge.src} → {edge.dst}, {_PHASES[edge.phase]}"
    return (
        f'<g class="arc" data-source="{xml(edge.src)}" data-target="{xml(edge.dst)}" '
        f'data-phase="{edge.phase}"><title>{xml(story)}</title><path class="touch" d="{path}"/>'
        f'<path class="line {edge.phase}" d="{path}" marker-end="url(#arrow)"/></g>'
    )


def _legend(graph: Graph, model: Model, width: float) -> tuple[str, float, float]:
    """The key, in rows that fit `width`: only what occurs."""
    kinds = {_kind(node, model) for node in graph.nodes}
    frame = Rectangle(0.0, 0.0, _ICON, 20.0)
    entries = [
        (shape(kind, frame), (PLAIN if kind is None else INKS[kind]).meaning)
        for kind in (None, *Kind)
        if kind in kinds
    ]
    phases = {edge.phase for edge in graph.edges}
    for phase in (Phase.INITIAL, Phase.SUCCESSIVE, Phase.BOTH):
        if phase in phases:
            line = f'<path class="line {phase}" d="M0 10H{n(_ICON)}" marker-end="url(#arrow)"/>'
            entries.append((line, _PHASES[phase]))
    ops = {node.op for node in graph.nodes}
    for op, meaning in _LETTERS.items():
        if op in ops:
            letter, _, words = meaning.partition(": ")
            entries.append((badge(letter, _ICON / 2, 10.0, FAINT_INK), words))
    entries.append(
        (f'<text class="size" x="{n(_ICON / 2 - 4)}" y="14">n, d</text>', "size of window, of slide")
    )
    parts: list[str] = []
    x = y = widest = 0.0
    for icon, words in entries:
        needed = _ICON + 9.0 + text_width(words, 11.5)
        if x and x + needed > width:
            x, y = 0.0, y + _ROW
        text = f'<text class="legend" x="{n(_ICON + 9)}" y="14">{xml(words)}</text>'
        parts.append(f'<g transform="translate({n(x)} {n(y)})">{icon}{text}</g>')
        widest = max(widest, x + needed)
        x += needed + 26.0
    return "".join(parts), widest, y + 20.0

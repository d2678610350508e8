"""SVG drawing of the dataflow graphs that compute a model when its window slides (C19).

Each graph node has an operator letter: S reads new elements, M appends vectors, F filters, T transforms, Ac
accumulates, A searches, P permutes, W stores a value for the next slide. Data flow from left to right. Only
stored values flow back, and enter their store from the right. The tooltip of a node or edge describes it. A
core statistic is a sum, count or extreme over the window from which the model's result is computed. Its class
says how it can be updated, and determines shape and colour of its nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slicemill.explain.layout import Box, Rectangle, lay_out
from slicemill.explain.svg import ARC, FAINT_INK, INK, MONO, PAPER, SANS, curve, n, text_width, wrap_text, xml
from slicemill.extensions.models.canonical_graphs import blocking_graph, execution_graph
from slicemill.extensions.models.cores import CoreKind, CoreMethod
from slicemill.extensions.models.cost import estimate
from slicemill.extensions.models.graph import InstancePhase, ModelEdge, ModelGraph, ModelNode, Op, Storage
from slicemill.extensions.models.model import Model

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

# Function that returns the class of a node's core statistic, and further lines of the node's tooltip
DescribeNode = Callable[[ModelNode], tuple[CoreKind | None, list[str]]]


@dataclass(frozen=True, slots=True)
class Picture:
    """SVG text of one drawn graph, and its size."""

    svg: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _DrawnBox:
    """Graph node to draw, with its lines of text and the number of elements of its output."""

    node: ModelNode
    lines: tuple[str, ...]
    size: str

    @property
    def lid(self) -> float:
        """Return the vertical offset of a node's text, which is below the lid of a cylinder (W)."""
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
    """Draw one dataflow graph of a model as SVG."""
    sizes = dimensions(graph)
    read = {edge.src for edge in graph.edges}
    drawn = [
        _DrawnBox(
            node,
            tuple(wrap_text(node.label, SIZE, _TEXT_WIDTH, _LINES, mono=True)) if node.label else (),
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
    """Return True if an edge writes to a store (W) a value that was computed from the same store."""
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
    return " | ".join(format_dimension(output) for output in outputs)


def _node(entry: _DrawnBox, r: Rectangle, describe: DescribeNode) -> str:
    kind, story = describe(entry.node)
    ink = style_of(kind)
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
    """Draw an edge of a model's graph. `turned` is True if its path was laid out in reverse."""
    story = f"{edge.src} → {edge.dst}, {PHASES[edge.phase]}"
    arrow = "marker-start" if turned else "marker-end"
    return (
        f'<g class="arc" data-source="{xml(edge.src)}" data-target="{xml(edge.dst)}" '
        f'data-phase="{edge.phase}"><title>{xml(story)}</title><path class="touch" d="{path}"/>'
        f'<path class="line {edge.phase}{" kept" * turned}" d="{path}" {arrow}="url(#arrow)"/></g>'
    )


# Shapes and colours of nodes, by the class of their core statistic (C19)


BADGE = 11.0  # radius of the circle with an operator's letter
TIP = 9.0
LID = 5.0


@dataclass(frozen=True, slots=True)
class NodeStyle:
    fill: str
    edge: str
    meaning: str


PLAIN = NodeStyle("#f4f6f8", "#6b7783", "serves all cores")
INKS = {
    CoreKind.INCREMENTAL: NodeStyle("#dcf3ea", "#00795c", "incremental"),
    CoreKind.SHIFT_INCREMENTAL: NodeStyle("#dcecf8", "#0072b2", "incremental, shifted"),
    CoreKind.TWO_STACK: NodeStyle("#dcecf8", "#0072b2", "two stacks"),
    CoreKind.AUX_MEMORY: NodeStyle("#fdf0d0", "#8a6100", "needs extra memory"),
    CoreKind.BLOCKING: NodeStyle("#fbe3dc", "#b93a00", "blocking"),
}


def style_of(kind: CoreKind | None) -> NodeStyle:
    return PLAIN if kind is None else INKS[kind]


def outline(node: ModelNode, kind: CoreKind | None, r: Rectangle) -> str:
    """Return the SVG outline of a graph node: an arrow for S, a cylinder for W.

    The shape of other operators depends on the class of their core statistic.
    """
    ink = style_of(kind)
    style = f'fill="{ink.fill}" stroke="{ink.edge}" stroke-width="1.5"'
    if node.op is Op.S:
        shoulder = n(r.right - TIP)
        path = f"M{n(r.x)} {n(r.y)}H{shoulder}L{n(r.right)} {n(r.middle)}L{shoulder} {n(r.bottom)}H{n(r.x)}Z"
        return f'<path d="{path}" stroke-linejoin="round" {style}/>'
    if node.op is Op.W:
        return _cylinder(r, ink, Storage(node.params.get("storage", Storage.WORKING)))
    return shape(kind, r)


def shape(kind: CoreKind | None, r: Rectangle) -> str:
    """Return the SVG outline for the class of a core statistic: how it can be updated.

    Incremental: rounded. Shifted and two stacks: pointed. Extra memory: cut corners. Blocking: double frame.
    """
    ink = style_of(kind)
    style = f'fill="{ink.fill}" stroke="{ink.edge}" stroke-width="1.5"'
    x, y, right, bottom = n(r.x), n(r.y), n(r.right), n(r.bottom)
    if kind in (CoreKind.SHIFT_INCREMENTAL, CoreKind.TWO_STACK):
        points = f"M{n(r.x + TIP)} {y}H{n(r.right - TIP)}L{right} {n(r.middle)}L{n(r.right - TIP)} {bottom}"
        return f'<path d="{points}H{n(r.x + TIP)}L{x} {n(r.middle)}Z" stroke-linejoin="round" {style}/>'
    if kind is CoreKind.AUX_MEMORY:
        cut = TIP - 2
        path = f"M{n(r.x + cut)} {y}H{n(r.right - cut)}L{right} {n(r.y + cut)}V{n(r.bottom - cut)}"
        path += f"L{n(r.right - cut)} {bottom}H{n(r.x + cut)}L{x} {n(r.bottom - cut)}V{n(r.y + cut)}Z"
        return f'<path d="{path}" {style}/>'
    if kind is CoreKind.BLOCKING:
        inner = f'x="{n(r.x + 3)}" y="{n(r.y + 3)}" width="{n(r.width - 6)}" height="{n(r.height - 6)}"'
        outer = f'x="{x}" y="{y}" width="{n(r.width)}" height="{n(r.height)}"'
        return f'<rect {outer} {style}/><rect {inner} fill="none" stroke="{ink.edge}" stroke-width="1"/>'
    radius = n(min(r.height / 2, 17.0))
    return f'<rect x="{x}" y="{y}" width="{n(r.width)}" height="{n(r.height)}" rx="{radius}" {style}/>'


def _cylinder(r: Rectangle, ink: NodeStyle, storage: Storage) -> str:
    """Return the SVG cylinder of a store: dashed for intermediate, double for permanent storage."""
    dash = ' stroke-dasharray="4 3"' if storage is Storage.INTERMEDIATE else ""
    arc = f"{n(r.width / 2)} {n(LID)} 0 0"
    top, bottom = n(r.y + LID), n(r.bottom - LID)
    body = f"M{n(r.x)} {top}A{arc} 1 {n(r.right)} {top}V{bottom}A{arc} 1 {n(r.x)} {bottom}Z"
    lid = f"M{n(r.x)} {top}A{arc} 0 {n(r.right)} {top}"
    stroke = f'stroke="{ink.edge}" stroke-width="1.5"{dash}'
    drawn = f'<path d="{body}" fill="{ink.fill}" {stroke}/><path d="{lid}" fill="none" {stroke}/>'
    if storage is Storage.PERMANENT:
        inner = Rectangle(r.x + 3, r.y + 3, r.width - 6, r.height - 6)
        drawn += _cylinder(inner, ink, Storage.WORKING)
    return drawn


def badge(letter: str, x: float, y: float, colour: str) -> str:
    """Return the SVG circle with the letter of an operator."""
    return (
        f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(BADGE)}" fill="{colour}"/>'
        f'<text class="letter" x="{n(x)}" y="{n(y + 4.2)}" text-anchor="middle">{letter}</text>'
    )


# Drawing of a model: its blocking graph and its incremental graph (C19)
#
# The blocking graph recomputes the result from the whole window at each slide (C13). The incremental graph
# updates each core statistic by the method of its class (C15, C17, C21). If no core statistic can be updated,
# only the blocking graph is drawn.


_TITLE = 15.0
_SUBTITLE = 13.0
_MARGIN = 28.0
_ICON = 40.0
_ROW = 30.0

_STYLE = f"""
text {{ font-family: {SANS}; fill: {INK}; }}
text.title {{ font-size: {_TITLE}px; font-weight: 600; }}
text.subtitle {{ font-size: {_SUBTITLE}px; font-weight: 600; }}
text.note {{ font-size: 12px; fill: {FAINT_INK}; }}
text.fact {{ font-size: {SIZE}px; font-family: {MONO}; white-space: pre; }}
text.letter {{ font-size: 12px; font-weight: 700; fill: {PAPER}; }}
text.size {{ font-size: 9.5px; fill: {FAINT_INK}; }}
text.legend {{ font-size: 11.5px; fill: {FAINT_INK}; }}
path.line {{ fill: none; stroke: {ARC}; stroke-width: 1.3; }}
path.kept {{ stroke-width: 2.2; }}
path.successive {{ stroke-dasharray: 5 3.5; }}
path.initial {{ stroke-dasharray: 1.5 3; stroke-linecap: round; }}
path.touch {{ fill: none; stroke: transparent; stroke-width: 9; }}
"""


@dataclass(frozen=True, slots=True)
class WindowUse:
    """Window over which a model is called: n elements, and d new elements per slide."""

    words: str
    n: int
    d: int


@dataclass(frozen=True, slots=True)
class _GraphSection:
    """One graph in the drawing of a model, with its title."""

    title: str
    graph: ModelGraph
    describe: DescribeNode


def model_svg(name: str, model: Model, use: WindowUse, *, compact: bool = False) -> str:
    """Return the drawing of a model as SVG. Equal models yield equal text.

    With `compact`, the drawing has only the graph that is executed, without a legend.
    """
    chapters = _graph_sections(model, use)[-1 if compact else 0 :]
    pictures = [picture(chapter.graph, chapter.describe) for chapter in chapters]
    heading = _heading(name, model)
    shown = [] if compact else chapters
    key, key_width, key_height = _legend(shown, max(640.0, *(drawn.width for drawn in pictures)))
    widths = [text_width(chapter.title, _SUBTITLE, bold=True) for chapter in chapters]
    widths += [text_width(heading[0], _TITLE, bold=True), *(text_width(t, 12.0) for t in heading[1:])]
    width = max(key_width, *widths, *(drawn.width for drawn in pictures)) + 2 * _MARGIN
    body, key_top = _body(chapters, pictures, _MARGIN + 20.0 * len(heading) + 8.0)
    height = key_top + key_height + _MARGIN
    found = model.classification
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{n(width)}" height="{n(height)}" '
        f'viewBox="0 0 {n(width)} {n(height)}" role="img" aria-labelledby="model-title">',
        f'<title id="model-title">{xml(f"Model {name}, {found.kind}: {found.reason}")}</title>',
        f"<style>{_STYLE}</style>",
        f'<defs><marker id="arrow" viewBox="0 0 8 8" refX="7.2" refY="4" markerWidth="8" markerHeight="8" '
        'markerUnits="userSpaceOnUse" orient="auto-start-reverse">'
        f'<path d="M0 0.6L8 4L0 7.4Z" fill="{ARC}"/></marker></defs>',
        f'<rect width="100%" height="100%" fill="{PAPER}"/>',
        *(
            f'<text class="{"note" if row else "title"}" x="{n(_MARGIN)}" y="{n(_MARGIN + 12 + 20 * row)}">'
            f"{xml(text)}</text>"
            for row, text in enumerate(heading)
        ),
        *body,
        f'<g transform="translate({n(_MARGIN)} {n(key_top)})">{key}</g>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _body(
    chapters: Sequence[_GraphSection], pictures: Sequence[Picture], top: float
) -> tuple[list[str], float]:
    """Draw the graphs of a model below each other. Return their SVG and the position of the bottom."""
    parts: list[str] = []
    for chapter, drawn in zip(chapters, pictures, strict=True):
        parts.append(f'<text class="subtitle" x="{n(_MARGIN)}" y="{n(top + 14)}">{xml(chapter.title)}</text>')
        parts += [f'<g transform="translate({n(_MARGIN)} {n(top + 32.0)})">', drawn.svg, "</g>"]
        top += 32.0 + drawn.height + _MARGIN
    return parts, top


def _graph_sections(model: Model, use: WindowUse) -> list[_GraphSection]:
    costs = estimate(model, use.n, use.d)
    sizes = f"in a slide of {use.d:,} over {use.n:,} elements ({use.words})"

    def recomputed(node: ModelNode) -> tuple[CoreKind | None, list[str]]:
        return (None, []) if node.core < 0 else (CoreKind.BLOCKING, [f"for {model.cores[node.core].symbol}"])

    def updated(node: ModelNode) -> tuple[CoreKind | None, list[str]]:
        if node.core < 0:
            return None, []
        found = model.classes[node.core]
        return found.kind, [f"for {model.cores[node.core].symbol}", f"{found.kind}: {found.reason}"]

    blocking = f"Blocking: all again, {costs.blocking.calls:,} calls {sizes}"
    chapters = [_GraphSection(blocking, blocking_graph(model), recomputed)]
    if any(found.way is not CoreMethod.RECOMPUTE for found in model.classes):
        words = f"Kept up: {costs.incremental.calls:,} calls {sizes}"
        chapters.append(_GraphSection(words, execution_graph(model), updated))
    return chapters


def _heading(name: str, model: Model) -> list[str]:
    found = model.classification
    called = f"{name}({', '.join(model.parameters)}) = {model.text}"
    (called_line,) = wrap_text(called, _TITLE, 900.0, 1)
    return [called_line, *wrap_text(f"{found.kind}: {found.reason}", 12.0, 900.0, 3)]


def _legend(chapters: Sequence[_GraphSection], width: float) -> tuple[str, float, float]:
    """Return a legend of the symbols that occur in the drawing, at most `width` wide."""
    if not chapters:
        return "", 0.0, 0.0
    kinds = {chapter.describe(node)[0] for chapter in chapters for node in chapter.graph.nodes}
    frame = Rectangle(0.0, 0.0, _ICON, 20.0)
    entries = [
        (shape(kind, frame), (PLAIN if kind is None else INKS[kind]).meaning)
        for kind in (None, *CoreKind)
        if kind in kinds
    ]
    phases = {edge.phase for chapter in chapters for edge in chapter.graph.edges}
    for phase in (InstancePhase.INITIAL, InstancePhase.SUCCESSIVE, InstancePhase.BOTH):
        if phase in phases:
            line = f'<path class="line {phase}" d="M0 10H{n(_ICON)}" marker-end="url(#arrow)"/>'
            entries.append((line, PHASES[phase]))
    line = f'<path class="line kept" d="M0 10H{n(_ICON)}" marker-end="url(#arrow)"/>'
    entries.append((line, "stored for the next slide"))
    ops = {node.op for chapter in chapters for node in chapter.graph.nodes}
    for op, meaning in LETTERS.items():
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


# Number of elements on each edge of a model's graph (C19)


# Number of elements a + b·d + c·n as (a, b, c), for windows of n elements that slide by d elements.
# None stands for a number that depends on the data.
Dimension = tuple[int, int, int] | None
ONE: Dimension = (1, 0, 0)
D: Dimension = (0, 1, 0)
N: Dimension = (0, 0, 1)


def dimensions(graph: ModelGraph) -> dict[str, list[Dimension]]:
    """Return the number of elements on each output of each graph node, by node id."""
    sizes: dict[str, list[Dimension]] = {"wx": [N]}
    extra = [node for node in graph.nodes if node.op is Op.F and node.id != "f"]
    candidates = {edge.src for node in extra for edge in graph.into(node.id, InstancePhase.SUCCESSIVE)}
    for node in graph.registers:
        sizes.setdefault(node.id, [None if node.id in candidates else ONE])
    for node in graph.order(InstancePhase.SUCCESSIVE):
        inputs = [
            sizes[e.src][e.src_port] for e in graph.into(node.id, InstancePhase.SUCCESSIVE) if e.src in sizes
        ]
        if node.op is not Op.W:
            sizes[node.id] = _outputs(node, inputs)
    return sizes


def _outputs(node: ModelNode, inputs: list[Dimension]) -> list[Dimension]:
    match node.op:
        case Op.S:
            return [D]
        case Op.AC | Op.A:
            return [ONE]
        case Op.F:
            return [D, minus_d(inputs[0])] if inputs[0] is not None else [None, None]
        case Op.M | Op.Z:
            total: Dimension = (0, 0, 0)
            for part in inputs:
                total = None if part is None or total is None else _sum(total, part)
            return [total]
    return [ONE] if "gather" in node.params else [inputs[0] if inputs else ONE]


def _sum(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def minus_d(whole: tuple[int, int, int]) -> Dimension:
    return _sum(whole, (0, -1, 0))


def format_dimension(dimension: Dimension) -> str:
    """Format a number of elements that depends on window size n and slide d.

    >>> format_dimension((1, 2, 0)), format_dimension((0, -1, 1)), format_dimension(None)
    ('2d + 1', 'n - d', '≤ n')
    """
    if dimension is None:
        return "≤ n"
    one, d, n = dimension
    parts = [(n, "n"), (d, "d"), (one, "")]
    text = ""
    for count, name in parts:
        if count:
            size = f"{abs(count) if abs(count) != 1 or not name else ''}{name}"
            text += (f" {'-' if count < 0 else '+'} " if text else "-" * (count < 0)) + size
    return text or "0"

"""Drawing of a model as SVG: blocking and incremental graph (C19).

The blocking graph reads the whole window at each slide: the paper's canonical form (C13). The incremental
graph updates each core by the method of its class (C15, C17, C21). A model without incremental cores has only
the blocking graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.explain.layout import Rectangle
from slicemill.explain.model_picture import LETTERS, PHASES, SIZE, DescribeNode, Picture, picture
from slicemill.explain.model_shapes import INKS, PLAIN, badge, shape
from slicemill.explain.svg_shapes import ARC, FAINT_INK, INK, PAPER, n
from slicemill.explain.svg_text import MONO, SANS, text_width, wrapped, xml
from slicemill.model.classify import CoreKind, CoreMethod
from slicemill.model.cost import estimate
from slicemill.model.graphs.canonical import blocking_graph
from slicemill.model.graphs.graph import InstancePhase, ModelGraph, ModelNode
from slicemill.model.graphs.kept import kept_graph
from slicemill.model.model import Model

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
class Use:
    """A window of a model: n elements, d new elements per slide."""

    words: str
    n: int
    d: int


@dataclass(frozen=True, slots=True)
class _Chapter:
    """A graph and its title."""

    title: str
    graph: ModelGraph
    describe: DescribeNode


def model_svg(name: str, model: Model, use: Use, *, compact: bool = False) -> str:
    """Return a model's graphs as SVG. Equal models yield equal text.

    With `compact`, only the graph that runs, without a legend.
    """
    chapters = _chapters(model, use)[-1 if compact else 0 :]
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


def _body(chapters: Sequence[_Chapter], pictures: Sequence[Picture], top: float) -> tuple[list[str], float]:
    """Stack the graphs; return their SVG and the bottom."""
    parts: list[str] = []
    for chapter, drawn in zip(chapters, pictures, strict=True):
        parts.append(f'<text class="subtitle" x="{n(_MARGIN)}" y="{n(top + 14)}">{xml(chapter.title)}</text>')
        parts += [f'<g transform="translate({n(_MARGIN)} {n(top + 32.0)})">', drawn.svg, "</g>"]
        top += 32.0 + drawn.height + _MARGIN
    return parts, top


def _chapters(model: Model, use: Use) -> list[_Chapter]:
    costs = estimate(model, use.n, use.d)
    sizes = f"in a slide of {use.d:,} over {use.n:,} elements ({use.words})"

    def again(node: ModelNode) -> tuple[CoreKind | None, list[str]]:
        return (None, []) if node.core < 0 else (CoreKind.BLOCKING, [f"for {model.cores[node.core].symbol}"])

    def kept(node: ModelNode) -> tuple[CoreKind | None, list[str]]:
        if node.core < 0:
            return None, []
        found = model.classes[node.core]
        return found.kind, [f"for {model.cores[node.core].symbol}", f"{found.kind}: {found.reason}"]

    blocking = f"Blocking: all again, {costs.blocking.calls:,} calls {sizes}"
    chapters = [_Chapter(blocking, blocking_graph(model), again)]
    if any(found.way is not CoreMethod.RECOMPUTE for found in model.classes):
        words = f"Kept up: {costs.incremental.calls:,} calls {sizes}"
        chapters.append(_Chapter(words, kept_graph(model), kept))
    return chapters


def _heading(name: str, model: Model) -> list[str]:
    found = model.classification
    called = f"{name}({', '.join(model.parameters)}) = {model.text}"
    (called_line,) = wrapped(called, _TITLE, 900.0, 1)
    return [called_line, *wrapped(f"{found.kind}: {found.reason}", 12.0, 900.0, 3)]


def _legend(chapters: Sequence[_Chapter], width: float) -> tuple[str, float, float]:
    """Return a legend of the symbols that occur, at most `width` wide."""
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

"""EXPLAIN of the query graph as a Mermaid flowchart and in Graphviz's DOT language.

Both formats have a box per node, an arrow per input and a frame per task. Sources are outside of frames,
and so are tables that several tasks look up. The colours are those of the SVG drawing.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from slicemill.explain.svg import ARC, INK, LOOKS
from slicemill.explain.text import describe_node, is_lookup_arc, names_of, port_name, printable, role_of
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Role
from slicemill.plan.tasks import split_into_tasks

_DOT_WIDTH = 48  # maximum characters of a label line; Graphviz does not wrap lines, unlike Mermaid

_MERMAID_SHAPES = {
    Role.SOURCE: (">", "]"),
    Role.TABLE: ("[(", ")]"),
    Role.STATELESS: ("[", "]"),
    Role.STATEFUL: ("[[", "]]"),
    Role.SINK: ("([", "])"),
}
_DOT_SHAPES = {
    Role.SOURCE: "shape=note",
    Role.TABLE: "shape=cylinder",
    Role.STATELESS: "shape=box",
    Role.STATEFUL: "shape=box, peripheries=2",
    Role.SINK: 'shape=box, style="filled,rounded"',
}

# Characters with a meaning in Mermaid, Markdown or HTML; a point or underscore between letters has none
_MERMAID_SPECIAL = re.compile(r"[^\w .,()='/]|(?<!\w)[._]|[._](?!\w)")


def explain_mermaid(graph: QueryGraph) -> str:
    """Return the graph as a Mermaid flowchart. Equal graphs yield equal text."""
    diagram = _diagram(graph)
    lines = ["flowchart LR"]
    for number, (title, nodes) in enumerate(diagram.frames):
        boxes = [_mermaid_box(node, diagram) for node in nodes]
        lines += [f"  subgraph u{number}[{mermaid_string([title])}]", *(f"  {box}" for box in boxes), "  end"]
    lines += [_mermaid_box(node, diagram) for node in diagram.unframed]
    for arrow in diagram.arrows:
        line = "-.->" if arrow.lookup else "-->"
        label = f"|{mermaid_string([arrow.label])}|" if arrow.label else ""
        lines.append(f"  {arrow.source} {line}{label} {arrow.target}")
    for role in sorted({role_of(node) for node in graph}):
        look = LOOKS[role]
        lines.append(f"  classDef {role.value} fill:{look.fill},stroke:{look.edge},color:{INK}")
    return "\n".join(lines) + "\n"


def explain_dot(graph: QueryGraph) -> str:
    """Return the graph in Graphviz's DOT language. Equal graphs yield equal text."""
    diagram = _diagram(graph)
    lines = [
        "digraph slicemill {",
        f'  graph [rankdir=LR, labeljust=l, style=rounded, color="{ARC}"];',
        '  graph [fontname="Helvetica", fontsize=11];',
        f'  node [fontname="Helvetica", fontsize=10, fontcolor="{INK}", style=filled];',
        f'  edge [fontname="Helvetica", fontsize=9, color="{ARC}"];',
    ]
    for number, (title, nodes) in enumerate(diagram.frames):
        boxes = [_dot_box(node, diagram) for node in nodes]
        label = f"    label={dot_string([title])};"
        lines += [f"  subgraph cluster_{number} {{", label, *(f"  {box}" for box in boxes), "  }"]
    lines += [_dot_box(node, diagram) for node in diagram.unframed]
    for arrow in diagram.arrows:
        attributes = [f"label={dot_string([arrow.label])}"] * bool(arrow.label)
        attributes += ["style=dashed"] * arrow.lookup
        shown = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f"  {arrow.source} -> {arrow.target}{shown};")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid_string(lines: Iterable[str]) -> str:
    """Quote lines for Mermaid, with special characters as `#code;`.

    >>> mermaid_string(['a < "b"', "x_1 # 2"])
    '"a #60; #34;b#34;<br>x_1 #35; 2"'
    """
    coded = "<br>".join(_MERMAID_SPECIAL.sub(_mermaid_code, printable(line)) for line in lines)
    return f'"{coded}"'


def _mermaid_code(found: re.Match[str]) -> str:
    return f"#{ord(found[0])};"


def dot_string(lines: Iterable[str]) -> str:
    r"""Quote lines for DOT, left-justified and wrapped at 48 characters.

    Graphviz replaces backslash escapes and HTML entities in a label.

    >>> print(dot_string(['a & "b"', "c"]))
    "a &amp; \"b\"\lc\l"
    """
    escapes = str.maketrans({"\\": "\\\\", '"': '\\"', "&": "&amp;"})
    wrapped = (textwrap.wrap(printable(line), _DOT_WIDTH, break_on_hyphens=False) for line in lines)
    escaped = (piece.translate(escapes) + "\\l" for pieces in wrapped for piece in pieces)
    return f'"{"".join(escaped)}"'


@dataclass(frozen=True, slots=True)
class _Arrow:
    source: str
    target: str
    label: str
    lookup: bool


@dataclass(frozen=True, slots=True)
class _Diagram:
    """Content of a diagram: frames of boxes, and arrows. `ids` and `labels` map node ids."""

    ids: dict[str, str]
    labels: dict[str, list[str]]
    frames: list[tuple[str, list[Node]]]
    unframed: list[Node]
    arrows: list[_Arrow]


def _diagram(graph: QueryGraph) -> _Diagram:
    ids = {node.id: f"n{number}" for number, node in enumerate(graph)}
    users = _queries_by_node(graph)
    labels = {node.id: _box_lines(node, graph, users[node.id]) for node in graph}
    tasks = split_into_tasks(graph)
    runs = Counter(node_id for task in tasks for node_id in task.nodes)
    owned = [(f"Task {task.id}", [graph[i] for i in task.nodes if runs[i] == 1]) for task in tasks]
    frames = [(title, nodes) for title, nodes in owned if nodes]
    unframed = [node for node in graph if runs[node.id] != 1]
    arrows = []
    for arc in graph.arcs:
        alias = port_name(graph[arc.target], arc.port)
        label = alias if alias not in names_of(graph, arc.source) else ""
        lookup = is_lookup_arc(graph, arc.target, arc.port)
        arrows.append(_Arrow(ids[arc.source], ids[arc.target], label, lookup))
    return _Diagram(ids, labels, frames, unframed, arrows)


def _queries_by_node(graph: QueryGraph) -> dict[str, list[str]]:
    """Return the queries that read each node, directly or through other nodes."""
    users: dict[str, list[str]] = {node.id: [] for node in graph}
    for sink in graph.sinks:
        for node_id in graph.ancestors(sink.id):
            users[node_id].append(sink.id)
    return users


def _box_lines(node: Node, graph: QueryGraph, queries: list[str]) -> list[str]:
    """Return the lines of text in a node's box: title, streams, properties and queries."""
    words = describe_node(node, graph)
    lines = [words.headline]
    if role_of(node) not in (Role.SOURCE, Role.TABLE):
        lines += [f"stream {name}" for name in names_of(graph, node.id)]
    lines += [text if index == 0 else f"{what}: {text}" for index, (what, text) in enumerate(words.facts)]
    if node.waits_for_time:
        lines.append("waits for watermark")
    if len(queries) > 1:
        lines.append(f"{len(queries)} queries: {', '.join(queries)}")
    return lines


def _mermaid_box(node: Node, diagram: _Diagram) -> str:
    role = role_of(node)
    opening, closing = _MERMAID_SHAPES[role]
    label = mermaid_string(diagram.labels[node.id])
    return f"  {diagram.ids[node.id]}{opening}{label}{closing}:::{role.value}"


def _dot_box(node: Node, diagram: _Diagram) -> str:
    role = role_of(node)
    look = LOOKS[role]
    colours = f'fillcolor="{look.fill}", color="{look.edge}"'
    label = dot_string(diagram.labels[node.id])
    return f"  {diagram.ids[node.id]} [label={label}, {_DOT_SHAPES[role]}, {colours}];"

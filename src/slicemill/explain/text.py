"""EXPLAIN of the query graph as text, with one tree for each query or shared operator.

The root of a tree is a result, its leaves are streams and tables. A node with several consumers has a tree of
its own, to which other trees refer (↗).
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from slicemill.explain.placements import PlacedTask, placement_facts
from slicemill.extension import sections
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.protocol import Description, Fact, Operator, Role
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import TIMESTAMPS
from slicemill.types import Schema

_MIN_WIDTH = 40
_WAITS = "[waits for watermark]"
_GLUE = "\xa0"  # non-breaking space between a column and its type


def explain_text(graph: QueryGraph, width: int = 100, tasks: Sequence[PlacedTask] = ()) -> str:
    """Return the graph as indented trees, with its tasks and a summary.

    Lines have at most `width` columns. Only lines of deep trees may be longer, because at least 20 columns
    remain for text.
    """
    printer = _Printer(graph, max(width, _MIN_WIDTH))
    trees = [printer.tree(graph[root]) for root in _roots(graph)]
    placed = [printer.task(task) for task in tasks]
    added = [[title, *(f"  {printable(line)}" for line in lines)] for title, lines in sections(graph).items()]
    summary = textwrap.wrap(_summary(graph), printer.width)
    return "\n\n".join("\n".join(lines) for lines in (*trees, *placed, *added, summary)) + "\n"


def names_of(graph: QueryGraph, node_id: str) -> list[str]:
    """Return the names of the streams, tables and views whose rows a node emits."""
    return [name for name, named in graph.streams.items() if named == node_id]


def _roots(graph: QueryGraph) -> list[str]:
    """Return the roots of the printed trees: shared nodes, derived streams, then queries."""
    readers = Counter(source for node in graph for source in node.inputs)
    derived = {i for i in graph.streams.values() if role_of(graph[i]) not in (Role.SOURCE, Role.TABLE)}
    shared = [node.id for node in graph if readers[node.id] > 1 or node.id in derived]
    sinks = [node.id for node in graph.sinks]
    unread = [node.id for node in graph if not readers[node.id]]
    return list(dict.fromkeys([*shared, *(i for i in unread if i not in sinks), *sinks]))


def printable(text: str) -> str:
    """Escape control characters, because a terminal would execute them."""
    return "".join(
        char if char.isprintable() or char == _GLUE else char.encode("unicode_escape").decode()
        for char in text
    )


def _columns(schema: Schema) -> str:
    return ", ".join(f"{column.name}{_GLUE}{column.type}" for column in schema)


def _count(number: int, word: str) -> str:
    plural = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{number} {word if number == 1 else plural}"


def _summary(graph: QueryGraph) -> str:
    roles = Counter(role_of(node) for node in graph)
    kinds = Counter(node.kind.value for node in graph.sources)
    waiting = sum(node.waits_for_time for node in graph)
    sources = _count(roles[Role.SOURCE], "source")
    if kinds:
        sources += f" ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
    operators = _count(roles[Role.STATELESS] + roles[Role.STATEFUL], "operator")
    if waiting:
        operators += f" ({waiting} {'waits' if waiting == 1 else 'wait'} for watermarks)"
    parts = [_count(len(graph.components()), "component"), sources, operators]
    if roles[Role.TABLE]:
        parts.append(f"{_count(roles[Role.TABLE], 'table')} or view{'s' if roles[Role.TABLE] > 1 else ''}")
    return " · ".join([*parts, _count(roles[Role.SINK], "sink")])


class _Printer:
    """Printer of a query graph as trees, with references between the trees."""

    def __init__(self, graph: QueryGraph, width: int) -> None:
        self.graph = graph
        self.width = width
        self.roots = set(_roots(graph))

    def tree(self, root: Node) -> list[str]:
        if role_of(root) in (Role.STATELESS, Role.STATEFUL):
            # The name of a derived stream or shared step precedes the operator that produces the rows.
            title = self._wrapped(self._title(root), "", "")
            return [*title, *self._branch(root, "", last=True, label="", columns=True)]
        return [*self._node(root, "", "", columns=True), *self._children(root, "")]

    def task(self, placed: PlacedTask) -> list[str]:
        """Format the placement of a task, with the reason for it."""
        title = self._wrapped(f"Task {placed.task.id}", "", "  ")
        return [*title, *self._facts(placement_facts(placed), "     ")]

    def _title(self, node: Node) -> str:
        names = names_of(self.graph, node.id)
        if role_of(node) in (Role.STATELESS, Role.STATEFUL):
            return f"Stream {', '.join(names)}" if names else f"Step {node.name}"
        return describe_node(node, self.graph).title

    def _branch(self, node: Node, indent: str, last: bool, label: str, columns: bool) -> Iterator[str]:
        below = f"{indent}{'   ' if last else '│  '}"
        yield from self._node(node, f"{indent}{'└─ ' if last else '├─ '}{label}", below, columns)
        yield from self._children(node, below)

    def _children(self, node: Node, indent: str) -> Iterator[str]:
        for port, source in enumerate(node.inputs):
            child = self.graph[source]
            last = port == len(node.inputs) - 1
            alias = port_name(node, port)
            label = f"{printable(alias)} = " if alias and alias not in names_of(self.graph, source) else ""
            if source in self.roots:
                time = f" ({TIMESTAMPS[child.kind]})" if role_of(child) is Role.SOURCE else ""
                first = f"{indent}{'└─ ' if last else '├─ '}{label}↗ "
                yield from self._wrapped(f"{self._title(child)}{time}", first, f"{indent}   ")
            else:
                # A sink has the schema of its input, which is printed already.
                shown = role_of(node) is Role.SINK or (
                    bool(child.inputs) and self.graph[child.inputs[0]].schema == child.schema
                )
                yield from self._branch(child, indent, last, label, columns=not shown)

    def _node(self, node: Node, first: str, below: str, columns: bool) -> Iterator[str]:
        """Yield the headline and the properties of a node.

        The main fact is part of the headline if it fits.
        """
        words = describe_node(node, self.graph)
        headline, facts = words.headline, list(words.facts)
        marks = f"  {_WAITS}" if node.waits_for_time else ""
        if facts:
            with_fact = f"{headline}  {facts[0][1]}"
            if len(first) + len(printable(with_fact + marks)) <= self.width:
                headline = with_fact
                del facts[0]
        also = names_of(self.graph, node.id)
        if role_of(node) in (Role.SOURCE, Role.TABLE) and len(also) > 1:
            facts.append(("also", ", ".join(also[1:])))
        if columns:
            facts.append(("columns", _columns(node.schema)))
        yield from self._wrapped(headline + marks, first, f"{below}  ")
        # The vertical line to the inputs continues on the left of these properties.
        yield from self._facts(facts, f"{below}{'│' if node.inputs else ' '}    ")

    def _facts(self, facts: Sequence[Fact], rail: str) -> Iterator[str]:
        margin = max((len(what) for what, _ in facts), default=0)
        for what, text in facts:
            yield from self._wrapped(text, f"{rail}{what:<{margin}}  ", f"{rail}{'':<{margin}}  ")

    def _wrapped(self, text: str, first: str, rest: str) -> list[str]:
        lines = textwrap.wrap(
            printable(text),
            max(self.width, len(rest) + _MIN_WIDTH // 2),
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
        )
        return [line.replace(_GLUE, " ") for line in lines]


# Descriptions of nodes, shared by all formats


def role_of(node: Node) -> Role:
    return kind_of(node.operator).role


def is_lookup_arc(graph: QueryGraph, target: str, port: int) -> bool:
    """Return True if an input of an operator is a table that the operator looks up."""
    operator = graph[target].operator
    return kind_of(operator).looked_up(operator, port)


def describe_node(node: Node, graph: QueryGraph) -> Description:
    """Return the description of a node: title and properties."""
    return kind_of(node.operator).words(node.operator, node, graph)


def operator_name(operator: Operator) -> str:
    """Return the class name of an operator in snake case.

    >>> from slicemill.operators.specs import Merge
    >>> operator_name(Merge())
    'merge'
    """
    name = type(operator).__name__
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def port_name(node: Node, port: int) -> str:
    """Return the alias of an operator's input, or an empty string if there is none."""
    return kind_of(node.operator).alias(node.operator, port)

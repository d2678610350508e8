"""Preview of a text: the plan of its queries, and the operators shared with running queries."""

from __future__ import annotations

from dataclasses import dataclass

from slicemill.engine.mill import Mill
from slicemill.esl import EslError, SourceText
from slicemill.esl.binder import bind_script
from slicemill.esl.types.catalog import QueryDefinition
from slicemill.explain.text import explain_text
from slicemill.operators.streams.spec import Source
from slicemill.plan.build import build_graph
from slicemill.plan.optimize import optimize, share
from slicemill.server.pages.live_graph import index_of


@dataclass(frozen=True, slots=True)
class TextPreview:
    """Preview of a text. `shares_with` lists the running queries that use some of the same operators."""

    plan: str
    queries: list[str]
    operators: int
    running_already: int
    shares_with: list[str]


def preview(mill: Mill, text: str) -> TextPreview:
    """Plan the continuous queries that a text declares. Nothing is run, including code in the text."""
    source = SourceText(text)
    bound = bind_script(source, mill.catalog, imports=False)
    if bound.diagnostics:
        raise EslError(source, bound.diagnostics)
    names = [one.name for one, _ in bound.statements if isinstance(one, QueryDefinition) and one.continuous]
    if not names:
        return TextPreview("", [], 0, 0, [])
    graph = share(optimize(build_graph(bound.catalog)), bound.catalog)
    wanted = frozenset().union(*(graph.ancestors(name) for name in names))
    own = graph.only(wanted)
    operators = [node.id for node in own if not isinstance(node.operator, Source)]
    running = index_of(mill.graph)
    shared = [node for node in operators if node in running.needed_by and node not in names]
    bits = 0
    for node in shared:
        bits |= running.needed_by[node]
    others = [name for name in running.names(bits) if name not in names]
    return TextPreview(explain_text(own), names, len(operators), len(shared), others)

"""EXPLAIN of the query graph as JSON.

Existing keys are stable, but new keys may be added.

- `version`: 1
- `nodes`: the nodes in topological order
  - `id`: id that does not depend on other queries; `label`: readable id
  - `operator`: class name of the operator in snake case, such as `window_join`. Operators that queries share
    are `shared_join`, `shared_windows` and so on. A `part` is the output of a shared operator for one query.
  - `role`: `source`, `table`, `stateless`, `stateful` or `sink`
  - `title`; `facts`: list of `{what, text}`
  - `inputs`: ids by port; `columns`: list of `{name, type}`
  - `timestamp`: `external`, `internal` or `latent`; `waits_for_time`: true or false
  - `component`: index into `components`
  - `cores`, only for `shared_models`: values stored per window, each with `core`, `window` and `users`, a
    list of `{query, call}`
- `arcs`: `source`, `target`, `port`, `alias` (the target's name for this input, or null), `kind` (`tuples` or
  `lookup`), `columns`, `timestamp`
- `components`: `nodes`, `sources`, `sinks`, each a list of ids
- `streams`: maps the name of each stream, table and view that is read or derived to the id of its node
- `sections`: maps the title of each section of an extension to a list of lines; absent if there are none
- `tasks`: the stateful tasks with their placements (format: `explain.placements`)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slicemill.explain.placements import PlacedTask, placements_data
from slicemill.explain.text import describe_node, is_lookup_arc, operator_name, port_name, role_of
from slicemill.extension import sections
from slicemill.operators.graph import Arc, Node, QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import QueryResults, Source
from slicemill.types import Schema


def explain_json(graph: QueryGraph, indent: int | None = 2, tasks: Sequence[PlacedTask] = ()) -> str:
    """Return the graph as JSON text."""
    return json.dumps(explain_data(graph, tasks), indent=indent, ensure_ascii=False) + "\n"


def explain_data(graph: QueryGraph, tasks: Sequence[PlacedTask] = ()) -> dict[str, Any]:
    """Return the graph as plain lists, dicts, strings and numbers."""
    components = graph.components()
    position = {node_id: index for index, part in enumerate(components) for node_id in part}
    return {
        "version": 1,
        "nodes": [_node(node, graph, position[node.id]) for node in graph],
        "arcs": [_arc(arc, graph) for arc in graph.arcs],
        "components": [_component(part, graph) for part in components],
        "streams": dict(graph.streams),
        "tasks": placements_data(tasks),
        **({"sections": shown} if (shown := sections(graph)) else {}),
    }


def _node(node: Node, graph: QueryGraph, component: int) -> dict[str, Any]:
    words = describe_node(node, graph)
    return {
        "id": node.id,
        "label": node.name,
        "operator": operator_name(node.operator),
        "role": role_of(node).value,
        "title": words.title,
        "facts": [{"what": what, "text": text} for what, text in words.facts],
        "inputs": list(node.inputs),
        "columns": _columns(node.schema),
        "timestamp": node.kind.value,
        "waits_for_time": node.waits_for_time,
        "component": component,
        **kind_of(node.operator).details(node.operator),
    }


def _arc(arc: Arc, graph: QueryGraph) -> dict[str, Any]:
    return {
        "source": arc.source,
        "target": arc.target,
        "port": arc.port,
        "alias": port_name(graph[arc.target], arc.port) or None,
        "kind": "lookup" if is_lookup_arc(graph, arc.target, arc.port) else "tuples",
        "columns": _columns(arc.schema),
        "timestamp": arc.kind.value,
    }


def _component(part: frozenset[str], graph: QueryGraph) -> dict[str, Any]:
    nodes = [node for node in graph if node.id in part]
    return {
        "nodes": [node.id for node in nodes],
        "sources": [node.id for node in nodes if isinstance(node.operator, Source)],
        "sinks": [node.id for node in nodes if isinstance(node.operator, QueryResults)],
    }


def _columns(schema: Schema) -> list[dict[str, str]]:
    return [{"name": column.name, "type": str(column.type)} for column in schema]

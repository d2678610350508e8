"""R9: equal parts of a graph are merged: the same operator on the same inputs is computed once."""

from __future__ import annotations

import json
from dataclasses import replace

from slicemill.model.graphs.graph import ModelGraph, ModelNode, Op


def rewrite(graph: ModelGraph) -> ModelGraph | None:
    """Merge equal nodes except sources and registers; None if there are none."""
    kept: dict[object, str] = {}
    same: dict[str, str] = {}
    while True:
        kept.clear()
        before = len(same)
        for node in graph.nodes:
            if node.op in (Op.S, Op.W) or node.id in same or node.id == graph.result:
                continue
            first = kept.setdefault(_content(node, graph, same), node.id)
            if first != node.id:
                same[node.id] = first
        if len(same) == before:
            break
    if not same:
        return None
    edges = []
    for edge in graph.edges:
        if edge.dst not in same:
            edges.append(replace(edge, src=same.get(edge.src, edge.src)))
    nodes = tuple(node for node in graph.nodes if node.id not in same)
    return replace(graph, nodes=nodes, edges=tuple(edges))


def _content(node: ModelNode, graph: ModelGraph, same: dict[str, str]) -> object:
    arrows = sorted(
        (edge.dst_port, same.get(edge.src, edge.src), edge.src_port, edge.phase)
        for edge in graph.edges
        if edge.dst == node.id
    )
    return node.op, json.dumps(dict(node.params), sort_keys=True), tuple(arrows)

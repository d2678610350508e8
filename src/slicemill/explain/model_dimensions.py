"""Number of elements on each edge of a model's graph (C19).

It depends on n, the size of the window, and d, the elements per slide.
"""

from __future__ import annotations

from slicemill.model.graphs.graph import InstancePhase, ModelGraph, ModelNode, Op

# Coefficients of 1, d and n; None if the number depends on the data.
Dimension = tuple[int, int, int] | None
ONE: Dimension = (1, 0, 0)
D: Dimension = (0, 1, 0)
N: Dimension = (0, 0, 1)


def dimensions(graph: ModelGraph) -> dict[str, list[Dimension]]:
    """Return the number of elements for each output of each node."""
    found: dict[str, list[Dimension]] = {"wx": [N]}
    extra = [node for node in graph.nodes if node.op is Op.F and node.id != "f"]
    candidates = {edge.src for node in extra for edge in graph.into(node.id, InstancePhase.SUCCESSIVE)}
    for node in graph.registers:
        found.setdefault(node.id, [None if node.id in candidates else ONE])
    for node in graph.order(InstancePhase.SUCCESSIVE):
        given = [
            found[e.src][e.src_port] for e in graph.into(node.id, InstancePhase.SUCCESSIVE) if e.src in found
        ]
        if node.op is not Op.W:
            found[node.id] = _outputs(node, given)
    return found


def _outputs(node: ModelNode, given: list[Dimension]) -> list[Dimension]:
    match node.op:
        case Op.S:
            return [D]
        case Op.AC | Op.A:
            return [ONE]
        case Op.F:
            return [D, minus_d(given[0])] if given[0] is not None else [None, None]
        case Op.M | Op.Z:
            total: Dimension = (0, 0, 0)
            for part in given:
                total = None if part is None or total is None else _sum(total, part)
            return [total]
    return [ONE] if "gather" in node.params else [given[0] if given else ONE]


def _sum(left: tuple[int, int, int], right: tuple[int, int, int]) -> tuple[int, int, int]:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


def minus_d(whole: tuple[int, int, int]) -> Dimension:
    return _sum(whole, (0, -1, 0))


def shown(dimension: Dimension) -> str:
    """Format a dimension.

    >>> shown((1, 2, 0)), shown((0, -1, 1)), shown(None)
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

"""R4: T · F = F · T, if T is uniform and F goes by index. Here F moves first: less is left to transform."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if not of.by_index or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(inner.functions[0], step(Op.F, of.text, inner.inputs[0]))

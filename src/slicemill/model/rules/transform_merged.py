"""R2: T · M(X, Y) = M(T · X, T · Y), if T is uniform. What does not change need not be transformed again."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    left, right = (transform(of.functions[0], part) for part in inner.inputs)
    return step(Op.M, "", left, right)

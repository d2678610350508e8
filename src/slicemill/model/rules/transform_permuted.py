"""R5: T · P = P · T, if T is uniform and P goes by index. Here P moves out, where R6 may drop it."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or inner.op is not Op.P or inner.text == "sort":
        return None
    return step(Op.P, inner.text, transform(of.functions[0], inner.inputs[0]))

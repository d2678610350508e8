"""R6: Ac · P = Ac, if ⊕ is commutative."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, step
from slicemill.model.graphs.graph import Op


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.P:
        return None
    return step(Op.AC, of.text, inner.inputs[0]) if of.accumulator.commutative else None

"""R3: Ac · M(X, Y) = Ac · M(Ac · X, Ac · Y), if ⊕ is associative: panes, parallel partial results, and C15.

An operator that works on a wider domain (a product counts zeros, `all` counts what is false) takes its own
results again: 0 is a product, and true and false are conditions.
"""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, accumulates, step
from slicemill.model.graphs.graph import Op

# Their results have another type than their elements, e.g. a list of lists.
_OTHER_DOMAIN = frozenset({"concat"})


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.AC or not isinstance(inner, FlowStep) or inner.op is not Op.M:
        return None
    if not of.accumulator.associative or of.text in _OTHER_DOMAIN:
        return None
    if all(map(accumulates, inner.inputs)):
        return None  # applied already
    left, right = (step(Op.AC, of.text, part) for part in inner.inputs)
    return step(Op.AC, of.text, step(Op.M, "", left, right))

"""R7: A[max] · T[f] = T[f] · A[max], if f is increasing; A[min] if it is decreasing. One f in place of n."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op
from slicemill.model.terms import Apply, Expr, Number, Parameter

_OTHER = {"max": "min", "min": "max"}


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.A or of.text not in _OTHER or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    sense = direction(inner.functions[0])
    if sense == 0:
        return None
    name = of.text if sense > 0 else _OTHER[of.text]
    return transform(inner.functions[0], step(Op.A, name, inner.inputs[0]))


def direction(expr: Expr) -> int:
    """Return 1 for increasing x ↦ expr, -1 for decreasing, else 0."""
    match expr:
        case Parameter("x"):
            return 1
        case Apply("neg", (inner,)):
            return -direction(inner)
        case Apply("+", (left, Number())) | Apply("+", (Number(), left)) | Apply("-", (left, Number())):
            return direction(left)
        case Apply("-", (Number(), right)):
            return -direction(right)
        case Apply("*", (Number(value), inner)) | Apply("*", (inner, Number(value))):
            return direction(inner) * _sign(value > 0, value < 0)
        case Apply("/", (inner, Number(value))):
            return direction(inner) * _sign(value > 0, value < 0)
        case Apply("^", (inner, Number(value))) if value > 0 and value.denominator == 1:
            return direction(inner) if value.numerator % 2 else 0
    return 0


def _sign(positive: bool, negative: bool) -> int:
    return int(positive) - int(negative)

"""R1: T[g] · T[f] = T[g∘f]. One pass over the elements in place of two."""

from __future__ import annotations

from slicemill.model.flow import Flow, FlowStep, transform
from slicemill.model.terms import Expr, Parameter, transformed


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if not of.uniform or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    return transform(composed(of.functions[0], inner.functions[0]), inner.inputs[0])


def composed(outer: Expr, inner: Expr) -> Expr:
    """Return outer(inner(x))."""
    return transformed(outer, lambda part: inner if part == Parameter("x") else None)

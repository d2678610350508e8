"""R8: Ac · F[where p] = Ac · T[where(p, x, e)], e the identity of ⊕: a filter becomes part of T."""

from __future__ import annotations

from fractions import Fraction

from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op
from slicemill.model.parse import parse
from slicemill.model.terms import Apply, Number, Parameter

_IDENTITIES = {"+": Fraction(0), "×": Fraction(1), "xor": Fraction(0), "gcd": Fraction(0)}


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text not in _IDENTITIES or not isinstance(inner, FlowStep):
        return None
    if inner.op is not Op.F or inner.by_index:
        return None
    condition = parse(inner.text.removeprefix("where "))
    chosen = Apply("where", (condition, Parameter("x"), Number(_IDENTITIES[of.text])))
    return step(Op.AC, of.text, transform(chosen, inner.inputs[0]))

"""R10: Ac[+] · T[c·f] = T[c·] · Ac[+] · T[f]: multiples of one sum are one sum."""

from __future__ import annotations

from fractions import Fraction

from slicemill.model.algebra import Polynomial, expression_of, polynomial
from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op
from slicemill.model.terms import Apply, Number, Parameter


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text != "+" or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    terms = polynomial(inner.functions[0]).terms
    if not terms or terms[0][1] == 1:
        return None
    factor: Fraction = terms[0][1]
    rest = expression_of(Polynomial.of((monomial, own / factor) for monomial, own in terms))
    total = step(Op.AC, "+", transform(rest, inner.inputs[0]))
    return transform(Apply("*", (Number(factor), Parameter("x"))), total)

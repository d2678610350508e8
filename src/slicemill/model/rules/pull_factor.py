"""R10: Ac[+] · T[c·f] = T[c·] · Ac[+] · T[f]: multiples of one sum are one sum.

Only explicit factors are moved: expanding (x - 1)^2 would cause cancellation (C24).
"""

from __future__ import annotations

from fractions import Fraction

from slicemill.model.algebra import Polynomial, expression_of, polynomial
from slicemill.model.flow import Flow, FlowStep, step, transform
from slicemill.model.graphs.graph import Op
from slicemill.model.terms import Apply, Expr, Number, Parameter


def rewrite(of: FlowStep) -> Flow | None:
    inner = of.inputs[0]
    if of.op is not Op.AC or of.text != "+" or not isinstance(inner, FlowStep) or not inner.uniform:
        return None
    factor, rest = _taken_apart(inner.functions[0])
    if factor in (0, 1):
        return None
    total = step(Op.AC, "+", transform(rest, inner.inputs[0]))
    return transform(Apply("*", (Number(factor), Parameter("x"))), total)


def _taken_apart(function: Expr) -> tuple[Fraction, Expr]:
    """Split an expression into a constant factor and the rest."""
    match function:
        case Apply("neg", (rest,)):
            return Fraction(-1), rest
        case Apply("*", (Number(value), rest)) | Apply("*", (rest, Number(value))):
            return value, rest
        case Apply("/", (rest, Number(value))) if value != 0:
            return 1 / value, rest
    terms = polynomial(function).terms
    degree = max((sum(power for _, power in monomial) for monomial, _ in terms), default=0)
    if not terms or (degree > 1 and len({own > 0 for _, own in terms}) > 1):
        return Fraction(1), function
    factor = terms[0][1]
    return factor, expression_of(Polynomial.of((monomial, own / factor) for monomial, own in terms))

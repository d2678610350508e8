"""Models in the paper's letters (C20), rewritten by the rules (C22) and then said as an expression.

    T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]      R5, R6: order does not matter to +      sqrt(sum(x^2))

What comes out is a value, so the last operator but for T is an accumulator or a search.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from slicemill.model.flow import Flow, FlowInput, FlowStep, flow, step
from slicemill.model.graphs.graph import Op
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.parse import parse
from slicemill.model.rules import RULES
from slicemill.model.rules.fuse_transforms import composed
from slicemill.model.terms import (
    POSITION,
    Apply,
    Expr,
    ModelError,
    Number,
    Parameter,
    WindowAggregation,
    number,
    transformed,
)

_BEGIN = re.compile(r"\s*(?:(?:T|Ac|A|F|P)\s*\[|M\s*\()")
_NAMES = {accumulator.symbol: name for name, accumulator in ACCUMULATORS.items()}
_IDENTITIES: dict[str, Expr] = {
    "+": number(0),
    "×": number(1),
    "xor": number(0),
    "gcd": number(0),
    "and": Apply("=", (number(0), number(0))),
    "or": Apply("<>", (number(0), number(0))),
}
_TOGETHER = {"+": "+", "×": "*", "and": "and", "or": "or"}
_ORDERED = frozenset({"first", "last", "lag", "argmax", "argmin"})  # searches to which order matters
# R10 is what collecting cores does in any case; R4 would only move F below T.
_USED = ("R1", "R2", "R5", "R6", "R3", "R7", "R8")
_MOST_STEPS = 1000


def in_letters(text: str) -> bool:
    """Does a text begin as the paper writes?

    >>> in_letters("Ac[+] · T[x^2]"), in_letters("sum(x^2)")
    (True, False)
    """
    return _BEGIN.match(text) is not None


@dataclass(frozen=True, slots=True)
class LetterModel:
    """What letters mean as an expression; `rules` were used on the way, in this order."""

    expr: Expr
    rules: tuple[str, ...]


def from_letters(text: str, parameters: Sequence[str] = ("x",)) -> LetterModel:
    """
    >>> from_letters("T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]")
    LetterModel(expr=sqrt(sum(x^2)), rules=('R5', 'R6'))
    """
    found, rules = rewritten(flow(re.sub(r"\s+(?=\[)", "", text)))
    expr = _value(found)
    if "x" not in parameters and parameters:
        named = Parameter(parameters[0])
        expr = transformed(expr, lambda part: named if part == Parameter("x") else None)
    return LetterModel(expr, tuple(dict.fromkeys(rules)))


def rewritten(of: Flow) -> tuple[Flow, list[str]]:
    """The flow as far as rules change it, and which did."""
    used: list[str] = []
    for _ in range(_MOST_STEPS):
        changed = _rewritten_once(of, used)
        if changed is None:
            return of, used
        of = changed
    raise ModelError(f"{of} goes on changing")  # a mistake in the rules


def _rewritten_once(of: Flow, used: list[str]) -> Flow | None:
    if isinstance(of, FlowInput):
        return None
    for name in _USED:
        changed = RULES[name](of)
        if changed is not None:
            used.append(name)
            return changed
    for place, inner in enumerate(of.inputs):
        changed = _rewritten_once(inner, used)
        if changed is not None:
            inputs = [*of.inputs[:place], changed, *of.inputs[place + 1 :]]
            return step(of.op, of.text, *inputs) if of.op is not Op.T else _transform(of, changed)
    return None


def _transform(of: FlowStep, inner: Flow) -> FlowStep:
    return FlowStep(Op.T, of.text, (inner,), of.functions, of.tail)


def _is_value(of: Flow) -> bool:
    """Does a flow give one number, whatever the window?"""
    while isinstance(of, FlowStep) and of.op is Op.T:
        of = of.inputs[0]
    return isinstance(of, FlowStep) and of.op in (Op.AC, Op.A)


def _value(of: Flow) -> Expr:
    if isinstance(of, FlowInput) or not _is_value(of):
        raise ModelError(f"{of} gives a vector: put an accumulator or a search in front, as in Ac[+] · {of}")
    inner = of.inputs[0]
    if of.op is Op.T:
        if not of.uniform:
            raise ModelError(f"T[{of.text}] stands behind a single value: one function is enough")
        return composed(of.functions[0], _value(inner))
    if of.op is Op.A:
        return _search(of, inner)
    if isinstance(inner, FlowStep) and inner.op is Op.M and all(map(_is_value, inner.inputs)):
        if of.text not in _TOGETHER:
            raise ModelError(f"Ac[{of.text}] over M has no form as an expression: accumulate one vector")
        left, right = (_value(part) for part in inner.inputs)
        return Apply(_TOGETHER[of.text], (left, right))
    if of.text not in _NAMES:
        raise ModelError(f"Ac[{of.text}] gives no number")
    elements = _elements(inner, ordered=not of.accumulator.commutative)
    return WindowAggregation(_NAMES[of.text], elements.or_else(_IDENTITIES[of.text]))


def _search(of: FlowStep, inner: Flow) -> Expr:
    if of.text not in SEARCHES or SEARCHES[of.text].options:
        raise ModelError(
            f"A[{of.text}] has no form as an expression: search with A[max], A[min], A[median], A[first], …"
        )
    elements = _elements(inner, ordered=of.text in _ORDERED)
    if elements.condition is not None:
        raise ModelError(f"F before A[{of.text}] leaves elements out, which a search cannot: use WHERE")
    return WindowAggregation(of.text, elements.image)


@dataclass(frozen=True, slots=True)
class _Elements:
    """What becomes of an element x, which elements there are, and whether they stand elsewhere by now."""

    image: Expr
    condition: Expr | None = None
    permuted: bool = False

    def or_else(self, identity: Expr) -> Expr:
        """What is accumulated: what is left out counts as nothing (R8)."""
        return (
            self.image if self.condition is None else Apply("where", (self.condition, self.image, identity))
        )

    def only(self, condition: Expr) -> _Elements:
        known = self.condition
        both = condition if known is None else Apply("and", (known, condition))
        return replace(self, condition=both)


def _elements(of: Flow, ordered: bool) -> _Elements:
    if isinstance(of, FlowInput):
        if of.name != "X":
            raise ModelError(f"there is no vector {of.name}: the window is X")
        return _Elements(Parameter("x"))
    if of.op is Op.M:
        raise ModelError("M makes a window of two, and what stands before it needs one")
    if of.op in (Op.AC, Op.A):
        raise ModelError(f"{of} is a value, and no vector")
    inner = _elements(of.inputs[0], ordered)
    word, _, rest = of.text.partition(" ")
    if of.op is Op.P:
        if ordered:
            raise ModelError(f"P[{of.text}] changes the order, which matters to what stands before it")
        return replace(inner, permuted=True)
    if of.op is Op.T and of.uniform:
        return replace(inner, image=composed(of.functions[0], inner.image))
    if of.op is Op.F and not of.by_index:
        return inner.only(composed(parse(rest), inner.image))
    if inner.condition is not None:
        raise ModelError(f"{of.op}[{of.text}] goes by place, and F before it has left places out")
    if inner.permuted:
        raise ModelError(f"{of.op}[{of.text}] goes by place, and P before it has changed places")
    if of.op is Op.F:
        return inner.only(Apply("<=" if word == "oldest" else ">", (POSITION, Number(Fraction(rest)))))
    return _Elements(_by_position(of, inner.image))


def _by_position(of: FlowStep, image: Expr) -> Expr:
    """T with a function for each place (C6)."""
    if not of.tail:
        raise ModelError(f"T[{of.text}] has no function for longer windows: end it with ; …")
    *firsts, last = (composed(function, image) for function in of.functions)
    found: Expr = last
    for place in range(len(firsts), 0, -1):
        found = Apply("where", (Apply("=", (POSITION, number(place))), firsts[place - 1], found))
    return found

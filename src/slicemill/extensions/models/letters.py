"""Translation of models in operator letters into formulas (C20), after rewriting by rules (C22).

    T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]      R5, R6: order does not matter to +      sqrt(sum(x^2))

Operator letters form a chain of vector operators (`flow`): T transforms elements, F filters, P permutes, M
appends a vector, A searches for an element, and Ac accumulates. The result must be a value, so the last
operator other than T is A or Ac. A chain that no formula describes becomes an aggregate whose name is the
text of the chain. The aggregate is recomputed from the whole window at each slide (C14).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from slicemill.extensions.models.flow import (
    Flow,
    FlowInput,
    FlowStep,
    accumulates,
    flow,
    step,
    steps_of,
    yields_scalar,
)
from slicemill.extensions.models.graph import Op
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.rules import RULES, compose
from slicemill.extensions.models.terms import (
    PI,
    POSITION,
    Apply,
    Expr,
    ModelError,
    Number,
    Parameter,
    Symbol,
    WindowAggregation,
    number,
    replace_parts,
    walk,
)
from slicemill.extensions.models.vectors import ORDERS

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

# Searches whose result depends on the order of elements
_ORDERED = frozenset({"first", "last", "lag", "argmax", "argmin"})

# Rewrite rules for operator chains, in the order in which they are tried
_USED = ("R1", "R2", "R4", "R5", "R6", "R3", "R7", "R8", "R10")

_MOST_STEPS = 1000
_MOST_LETTERS = 100


class _NoExpression(ModelError):
    """Raised if an operator chain has a value, but no equivalent formula."""


@dataclass(frozen=True, slots=True)
class LetterModel:
    """Formula of a model in operator letters, and the rewrite rules applied, each with its result."""

    expr: Expr
    steps: tuple[tuple[str, Flow], ...]

    @property
    def rules(self) -> tuple[str, ...]:
        """Return the names of the rewrite rules applied, in order of first use."""
        return tuple(dict.fromkeys(rule for rule, _ in self.steps))


def from_letters(text: str, parameters: Sequence[str] = ("x",)) -> LetterModel:
    """Translate a model in operator letters into a formula.

    >>> model = from_letters("T[sqrt(x)] · Ac[+] · T[x^2] · P[reverse]")
    >>> model.expr, model.rules
    (sqrt(sum(x^2)), ('R5', 'R6'))
    """
    if text.count("[") > _MOST_LETTERS:  # limits the depth of recursion in rewriting
        raise ModelError("there are too many letters: declare parts of the text as separate models")
    rewritten, steps = rewrite_flow(parse_written_flow(text))
    _check(rewritten)
    try:
        expr = _value(rewritten)
    except _NoExpression:
        expr = _as_flow(rewritten)
    if "x" not in parameters and parameters:
        named = Parameter(parameters[0])
        expr = replace_parts(expr, lambda part: named if part == Parameter("x") else None)
    return LetterModel(expr, tuple(steps))


def _as_flow(of: Flow) -> Expr:
    """Return an operator chain without an equivalent formula as an aggregate, named by its letters.

    The functions in the chain may use x only, not positions or values of the window.
    """
    for part in steps_of(of):
        texts = [part.text.partition(" ")[2]] if part.op in (Op.A, Op.F) and " " in part.text else []
        conditions = [parse(text) for text in texts if not text.isdigit()]
        for name in (part for expr in (*part.functions, *conditions) for part in walk(expr)):
            if isinstance(name, (Parameter, Symbol)) and name not in (Parameter("x"), PI):
                raise ModelError(f"{name} means nothing in {part.op}[{part.text}]: x is the element there")
    return WindowAggregation(str(of), Parameter("x"))


def parse_written_flow(text: str) -> Flow:
    """Parse a chain of operator letters, with blanks allowed before brackets."""
    return flow(re.sub(r"\s+(?=\[)", "", text))


def rewrite_flow(of: Flow) -> tuple[Flow, list[tuple[str, Flow]]]:
    """Rewrite an operator chain until no rule applies. Return the result and all steps (rule, chain)."""
    steps: list[tuple[str, Flow]] = []
    for _ in range(_MOST_STEPS):
        used: list[str] = []
        changed = _rewrite_once(of, used)
        if changed is None:
            return of, steps
        of = changed
        steps.append((used[0], of))
    raise ModelError(f"the rewrite rules do not terminate for {of}")


def _rewrite_once(of: Flow, used: list[str]) -> Flow | None:
    if isinstance(of, FlowInput):
        return None
    for name in _USED:
        changed = RULES[name](of)
        if changed is not None:
            used.append(name)
            return changed
    for index, inner in enumerate(of.inputs):
        changed = _rewrite_once(inner, used)
        if changed is not None:
            inputs = [*of.inputs[:index], changed, *of.inputs[index + 1 :]]
            return step(of.op, of.text, *inputs) if of.op is not Op.T else _transform(of, changed)
    return None


def _transform(of: FlowStep, inner: Flow) -> FlowStep:
    return FlowStep(Op.T, of.text, (inner,), of.functions, of.tail)


def _check(of: Flow) -> None:
    """Raise an error if an operator chain can never yield a value."""
    if not yields_scalar(of):
        raise ModelError(f"{of} gives a vector: put an accumulator or a search in front, as in Ac[+] · {of}")
    for part in steps_of(of):
        for name in (inner.name for inner in part.inputs if isinstance(inner, FlowInput)):
            if name != "X":
                raise ModelError(f"there is no vector {name}: the window is X")
        if part.op is Op.T and not part.tail:
            raise ModelError(f"T[{part.text}] has no function for longer windows: end it with ; …")
        if part.op is Op.AC and part.text not in _NAMES:
            raise ModelError(f"Ac[{part.text}] gives no number")
        if part.op is Op.P and part.text not in ORDERS:
            raise ModelError(f"P has no order {part.text}; it has {', '.join(ORDERS)}")
        if part.op is Op.A and part.text in SEARCHES and SEARCHES[part.text].options:
            raise ModelError(f"A[{part.text}] needs a number: write it as an expression, {part.text}(x, …)")


def _value(of: Flow) -> Expr:
    assert isinstance(of, FlowStep), "it gives a value"
    inner = of.inputs[0]
    if of.op is Op.T:
        return compose(of.functions[0], _value(inner))
    if of.op is Op.A:
        return _search(of, inner)
    if isinstance(inner, FlowStep) and inner.op is Op.M and all(map(accumulates, inner.inputs)):
        if of.text not in _TOGETHER:
            raise _NoExpression(f"Ac[{of.text}] over M")
        left, right = (_value(part) for part in inner.inputs)
        return Apply(_TOGETHER[of.text], (left, right))
    elements = _elements(inner, ordered=not of.accumulator.commutative)
    return WindowAggregation(_NAMES[of.text], elements.with_identity(_IDENTITIES[of.text]))


def _search(of: FlowStep, inner: Flow) -> Expr:
    if of.text not in SEARCHES or SEARCHES[of.text].options:
        raise _NoExpression(f"A[{of.text}] by a condition")
    elements = _elements(inner, ordered=of.text in _ORDERED)
    if elements.condition is not None:
        raise _NoExpression(f"A[{of.text}] after F has no formula, because searches have no filter")
    return WindowAggregation(of.text, elements.image)


@dataclass(frozen=True, slots=True)
class _Elements:
    """Elements of a vector as a formula: their values, and the condition under which they are included.

    `permuted` is True if a permutation (P) has changed their order.
    """

    image: Expr
    condition: Expr | None = None
    permuted: bool = False

    def with_identity(self, identity: Expr) -> Expr:
        """Return the expression to aggregate, in which excluded elements have the value `identity` (R8).

        The identity does not change the aggregate: 0 for sums, 1 for products.
        """
        return (
            self.image if self.condition is None else Apply("where", (self.condition, self.image, identity))
        )

    def only(self, condition: Expr) -> _Elements:
        earlier = self.condition
        both = condition if earlier is None else Apply("and", (earlier, condition))
        return replace(self, condition=both)


def _elements(of: Flow, ordered: bool) -> _Elements:
    if isinstance(of, FlowInput):
        return _Elements(Parameter("x"))
    if of.op is Op.M:
        raise _NoExpression("M appends two vectors, and formulas have only one window")
    if of.op in (Op.AC, Op.A):
        raise _NoExpression(f"{of} is a value, not a vector")
    inner = _elements(of.inputs[0], ordered)
    word, _, rest = of.text.partition(" ")
    if of.op is Op.P:
        if ordered:
            raise _NoExpression(f"P[{of.text}] changes the order, on which the result depends")
        return replace(inner, permuted=True)
    if of.op is Op.T and of.uniform:
        return replace(inner, image=compose(of.functions[0], inner.image))
    if of.op is Op.F and not of.by_index:
        return inner.only(compose(parse(rest), inner.image))
    if inner.condition is not None:
        raise _NoExpression(f"{of.op}[{of.text}] depends on positions, which F has changed")
    if inner.permuted:
        raise _NoExpression(f"{of.op}[{of.text}] depends on positions, which P has changed")
    if of.op is Op.F:
        return inner.only(Apply("<=" if word == "oldest" else ">", (POSITION, Number(Fraction(rest)))))
    return _Elements(_by_position(of, inner.image))


def _by_position(of: FlowStep, image: Expr) -> Expr:
    """Translate a transform with a function per position, T[f; g; …], into where(i = 1, f, g) (C6)."""
    *firsts, last = (compose(function, image) for function in of.functions)
    expr: Expr = last
    for index in range(len(firsts), 0, -1):
        expr = Apply("where", (Apply("=", (POSITION, number(index))), firsts[index - 1], expr))
    return expr

"""Low-level form of the model language: composed operators, right to left (C20).

    T[sqrt(x)] · Ac[+] · T[x^2] · X        M(T[x^2] · X, Y)        Ac[+] · F[where x > 0]

A flow is a tree. Its leaves are named vectors (X if omitted), and its operators have flows as inputs.

| written | means |
|---|---|
| `T[f]`, `T[f; g]`, `T[f; g; …]` | f everywhere; f, then g; f, then g for all others |
| `Ac[+]`, `A[max]`, `A[first x > 0]`, `A[where x > 0]` | accumulator, searches |
| `F[oldest 2]`, `F[rest 2]`, `F[where x > 0]` | part of a vector |
| `P[reverse]`, `M(a, b)` | another order, one after the other |
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

from slicemill.extensions.models import vectors
from slicemill.extensions.models.graph import Op
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES, Accumulation
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.scalars import evaluate, exact
from slicemill.extensions.models.terms import Expr, ModelError
from slicemill.extensions.models.vectors import Function, Vector

# Operators that the expression language does not have.
CONCATENATION = Accumulation(
    "concat", lambda left, right: (*left, *right), (), commutative=False, lift=lambda x: (x,), exact=True
)
OPERATORS = {accumulator.symbol: accumulator for accumulator in ACCUMULATORS.values()} | {
    "concat": CONCATENATION
}


@dataclass(frozen=True, slots=True)
class FlowInput:
    name: str = "X"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class FlowStep:
    """An operator with inputs, bracket text, and T's parsed functions."""

    op: Op
    text: str
    inputs: tuple[Flow, ...]
    functions: tuple[Expr, ...] = ()
    tail: bool = False

    def __str__(self) -> str:
        if self.op is Op.M:
            return f"M({self.inputs[0]}, {self.inputs[1]})"
        return f"{self.op}[{self.text}] · {self.inputs[0]}"

    @property
    def uniform(self) -> bool:
        """Return True for a T with the same function at all positions."""
        return self.op is Op.T and self.tail and len(self.functions) == 1

    @property
    def by_index(self) -> bool:
        """Return True for an F that selects by position, not by value."""
        return self.op is Op.F and not self.text.startswith("where ")

    @property
    def accumulator(self) -> Accumulation:
        return OPERATORS[self.text]


Flow: TypeAlias = FlowInput | FlowStep


_BEGIN = re.compile(r"\s*(?:(?:T|Ac|A|F|P)\s*\[|M\s*\()")


def in_letters(text: str) -> bool:
    """Return True if a text is in the paper's letters.

    >>> in_letters("Ac[+] · T[x^2]"), in_letters("sum(x^2)")
    (True, False)
    """
    return _BEGIN.match(text) is not None


def steps_of(of: Flow) -> Iterator[FlowStep]:
    """Yield all operators of a flow, from the last to the first."""
    if isinstance(of, FlowStep):
        yield of
        for inner in of.inputs:
            yield from steps_of(inner)


def before_transforms(of: Flow) -> Flow:
    """Return a flow without its final T operators."""
    while isinstance(of, FlowStep) and of.op is Op.T:
        of = of.inputs[0]
    return of


def accumulates(of: Flow) -> bool:
    """Return True if a flow always yields one number."""
    core = before_transforms(of)
    return isinstance(core, FlowStep) and core.op is Op.AC


def gives_value(of: Flow) -> bool:
    """Return True if a flow yields at most one number."""
    core = before_transforms(of)
    search = isinstance(core, FlowStep) and core.op is Op.A and not core.text.startswith("where ")
    return search or accumulates(of)


def transform(function: Expr, of: Flow) -> FlowStep:
    return FlowStep(Op.T, str(function), (of,), (function,), tail=True)


def step(op: Op, text: str, *inputs: Flow) -> FlowStep:
    """Return an operator after checking its text."""
    if op is Op.T:
        parts = [part.strip() for part in text.split(";")]
        tail = len(parts) == 1 or parts[-1] in ("…", "...")
        functions = tuple(parse(part) for part in parts if part not in ("…", "..."))
        return FlowStep(op, text, inputs, functions, tail)
    known = {
        Op.AC: text in OPERATORS,
        Op.A: text in SEARCHES or text.startswith(("first ", "where ")),
        Op.F: bool(re.fullmatch(r"(oldest|rest) \d+|where .+", text)),
    }
    if not known.get(op, True):
        raise ModelError(f"{op}[{text}] is no operator of models")
    return FlowStep(op, text, inputs)


_STEP = re.compile(r"\s*(?:(T|Ac|A|F|P)\[([^\]]*)\]|(M)\(|([A-Z]\w*))\s*")


def flow(text: str) -> Flow:
    """Parse a flow.

    >>> run(flow("T[sqrt(x)] · Ac[+] · T[x^2]"), {"X": (3, 4)})
    (Fraction(5, 1),)
    """
    found, rest = _flow(text, text)
    if rest:
        raise ModelError(f"expected '·' before {rest!r} in {text}")
    return found


def _flow(text: str, whole: str) -> tuple[Flow, str]:
    match = _STEP.match(text)
    if match is None:
        raise ModelError(
            f"expected T[…], Ac[…], A[…], F[…], P[…], M(…, …) or a vector at {text!r} in {whole}"
        )
    rest = text[match.end() :]
    letter, inner, merge, name = match.groups()
    if name is not None:
        return FlowInput(name), rest
    if merge is not None:
        left, rest = _flow(rest, whole)
        if not rest.startswith(","):
            raise ModelError(f"M takes two vectors, M(a, b), in {whole}")
        right, rest = _flow(rest[1:], whole)
        if not rest.startswith(")"):
            raise ModelError(f"M( is not closed in {whole}")
        return step(Op.M, "", left, right), rest[1:].lstrip()
    of: Flow = FlowInput()
    if rest.startswith("·"):
        of, rest = _flow(rest[1:], whole)
    return step(Op(letter), inner.strip(), of), rest


def run(of: Flow, given: Mapping[str, Vector]) -> Vector:
    """Evaluate a flow and return the resulting vector."""
    if isinstance(of, FlowInput):
        if of.name not in given:
            raise ModelError(f"there is no vector {of.name}")
        return tuple(map(exact, given[of.name]))
    inputs = [run(source, given) for source in of.inputs]
    return _apply_step(of, inputs)


@cache
def _parse_cached(letters: str) -> Flow:
    return flow(letters)


def value_of(letters: str, window: Sequence[object]) -> object:
    """Evaluate a flow over one window. Return None if it has no value."""
    try:
        found = run(_parse_cached(letters), {"X": tuple(window)})
    except _NoValue:
        return None
    return found[0] if found else None


class _NoValue(ModelError):
    """A function is undefined for an element, or elements are missing."""


def _apply_step(of: FlowStep, inputs: list[Vector]) -> Vector:
    first = inputs[0]
    word, _, argument = of.text.partition(" ")
    match of.op:
        case Op.M:
            return vectors.merge(*inputs)
        case Op.T:
            images = vectors.transform(first, [_function(f) for f in of.functions], tail=of.tail)
            if any(image is None for image in images):
                raise _NoValue(f"T[{of.text}] has no value for some element")
            return images
        case Op.AC:
            return (of.accumulator.fold(first),)
        case Op.A if of.text in SEARCHES:
            return vectors.search(first, of.text)
        case Op.A:
            return vectors.search_where(first, _function(parse(argument)), first=word == "first")
        case Op.F if word == "where":
            return vectors.filter_where(first, _function(parse(argument)))[0]
        case Op.F:
            if int(argument) > len(first):
                raise _NoValue(f"F[{of.text}] of a vector of dimension {len(first)}: there are not as many")
            return vectors.filter_oldest(first, int(argument))[word == "rest"]
    return vectors.permute(first, of.text)


def _function(expr: Expr) -> Function:
    return lambda element: evaluate(expr, {"x": element})

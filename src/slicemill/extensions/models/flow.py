"""Operator letters: models written as a chain of vector operators, read from right to left (C20).

    T[sqrt(x)] · Ac[+] · T[x^2] · X        M(T[x^2] · X, Y)        Ac[+] · F[where x > 0]

The first chain squares the elements of the window X, adds them, and returns the root: sqrt(sum(x^2)). A flow
(`Flow`) is the parsed chain, a tree. Its leaves are named vectors (X if omitted), and its operators have
flows as inputs. The letters are those of Dani and Getta, Conceptual Modelling of Computations on Data
Streams.

| letter | example | meaning |
|---|---|---|
| T transform | `T[f]` | apply f to each element |
| | `T[f; g]`, `T[f; g; …]` | apply f to the first element, g to the second, or g to all others |
| Ac accumulate | `Ac[+]` | combine all elements into one value |
| A search | `A[max]`, `A[first x > 0]`, `A[where x > 0]` | find elements |
| F filter | `F[oldest 2]`, `F[rest 2]`, `F[where x > 0]` | select elements |
| P permute | `P[reverse]` | change the order of elements |
| M merge | `M(a, b)` | append vector b to vector a |
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

# Accumulator that only models in operator letters have: it appends elements to a list.
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
    """One operator of a chain in operator letters, such as `T[x^2]`, with its input chains.

    `text` is the text in brackets. For the letter T (transform), `functions` are the parsed functions. With
    `tail`, the last function applies to all further elements.
    """

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
        """Return True for a transform (T) with the same function for all elements."""
        return self.op is Op.T and self.tail and len(self.functions) == 1

    @property
    def by_index(self) -> bool:
        """Return True for a filter (F) that selects elements by position, not by value."""
        return self.op is Op.F and not self.text.startswith("where ")

    @property
    def accumulator(self) -> Accumulation:
        return OPERATORS[self.text]


Flow: TypeAlias = FlowInput | FlowStep


_BEGIN = re.compile(r"\s*(?:(?:T|Ac|A|F|P)\s*\[|M\s*\()")


def in_letters(text: str) -> bool:
    """Return True if the text of a model is a chain of operator letters, not an expression.

    >>> in_letters("Ac[+] · T[x^2]"), in_letters("sum(x^2)")
    (True, False)
    """
    return _BEGIN.match(text) is not None


def steps_of(of: Flow) -> Iterator[FlowStep]:
    """Yield all operators of a chain, from the last to the first."""
    if isinstance(of, FlowStep):
        yield of
        for inner in of.inputs:
            yield from steps_of(inner)


def before_transforms(of: Flow) -> Flow:
    """Return an operator chain without the transforms (T) that are applied last."""
    while isinstance(of, FlowStep) and of.op is Op.T:
        of = of.inputs[0]
    return of


def accumulates(of: Flow) -> bool:
    """Return True if an operator chain always yields exactly one number, from an accumulator (Ac)."""
    inner = before_transforms(of)
    return isinstance(inner, FlowStep) and inner.op is Op.AC


def yields_scalar(of: Flow) -> bool:
    """Return True if an operator chain yields at most one number, not a vector."""
    inner = before_transforms(of)
    search = isinstance(inner, FlowStep) and inner.op is Op.A and not inner.text.startswith("where ")
    return search or accumulates(of)


def transform(function: Expr, of: Flow) -> FlowStep:
    return FlowStep(Op.T, str(function), (of,), (function,), tail=True)


def step(op: Op, text: str, *inputs: Flow) -> FlowStep:
    """Build one operator of a chain, after checking the text in its brackets."""
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
        raise ModelError(f"{op}[{text}] is not an operator of models")
    return FlowStep(op, text, inputs)


_STEP = re.compile(r"\s*(?:(T|Ac|A|F|P)\[([^\]]*)\]|(M)\(|([A-Z]\w*))\s*")


def flow(text: str) -> Flow:
    """Parse a chain of operator letters.

    >>> run(flow("T[sqrt(x)] · Ac[+] · T[x^2]"), {"X": (3, 4)})
    (Fraction(5, 1),)
    """
    parsed, rest = _flow(text, text)
    if rest:
        raise ModelError(f"expected '·' before {rest!r} in {text}")
    return parsed


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


def run(of: Flow, named: Mapping[str, Vector]) -> Vector:
    """Evaluate an operator chain over named vectors, and return the resulting vector."""
    if isinstance(of, FlowInput):
        if of.name not in named:
            raise ModelError(f"there is no vector {of.name}")
        return tuple(map(exact, named[of.name]))
    inputs = [run(source, named) for source in of.inputs]
    return _apply_step(of, inputs)


@cache
def _parse_cached(letters: str) -> Flow:
    return flow(letters)


def value_of(letters: str, window: Sequence[object]) -> object:
    """Evaluate a text in operator letters over one window. Return None if the result has no value."""
    try:
        vector = run(_parse_cached(letters), {"X": tuple(window)})
    except _NoValue:
        return None
    return vector[0] if vector else None


class _NoValue(ModelError):
    """Raised if a function has no value for an element, or the window has too few elements."""


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
                raise _NoValue(f"F[{of.text}] needs {argument} elements, and the vector has {len(first)}")
            return vectors.filter_oldest(first, int(argument))[word == "rest"]
    return vectors.permute(first, of.text)


def _function(expr: Expr) -> Function:
    return lambda element: evaluate(expr, {"x": element})

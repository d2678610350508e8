"""Reference semantics of models: the expression evaluated over one window.

The arithmetic is exact where possible. Expressions are not rearranged and no state is kept, so all other
implementations are tested against this module. Some elements have no value for a parameter, or for a
subexpression of parameters alone. Such an element is not part of the vector: `n` does not count it and `i`
skips it (C24, policy skip). Under policy poison, it makes the value of the window NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fractions import Fraction
from typing import cast

from slicemill.model.flow import in_letters, value_of
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.scalars import Value, evaluate, exact
from slicemill.model.terms import Apply, Expr, Let, Parameter, Symbol, WindowAggregation, children, walk


class Nulls(StrEnum):
    """Effect of an element without a value."""

    SKIP = "skip"
    POISON = "poison"


def value(
    expr: Expr,
    rows: Sequence[Mapping[str, object]],
    stamps: Sequence[object] | None = None,
    nulls: Nulls = Nulls.SKIP,
) -> Value:
    """Evaluate an expression over a window.

    >>> from slicemill.model.parse import parse
    >>> value(parse("sum(x^2)/n"), [{"x": 1}, {"x": None}, {"x": 2}])
    Fraction(5, 2)
    """
    elements = [{name: exact(given) for name, given in row.items()} for row in rows]
    times = [Fraction(i) for i in range(len(rows))] if stamps is None else [exact(t) for t in stamps]
    wanted = [part for aggregate in _aggregates(expr) for part in uniform_parts(aggregate.argument)]
    kept = [k for k, element in enumerate(elements) if all(evaluate(e, element) is not None for e in wanted)]
    if nulls is Nulls.POISON and len(kept) < len(elements):
        return None
    window = [
        {**elements[k], "i": Fraction(i), "n": Fraction(len(kept)), "age": times[-1] - times[k]}  # type: ignore[operator]
        for i, k in enumerate(kept, start=1)
    ]
    return _value(expr, window, {"n": Fraction(len(kept))})


def _value(expr: Expr, window: Sequence[Mapping[str, Value]], names: Mapping[str, Value]) -> Value:
    match expr:
        case WindowAggregation(name, argument, options):
            # If a value of the window is NULL, so is the aggregate, even for an empty window.
            if any(names.get(part.name, 0) is None for part in walk(argument) if isinstance(part, Symbol)):
                return None
            found = [evaluate(argument, {**names, **element}) for element in window]
            return accumulated(name, found, options)
        case Let(name, bound, body):
            return _value(body, window, {**names, name: _value(bound, window, names)})
        case Apply(function, arguments):
            inner = {f"v{k}": _value(argument, window, names) for k, argument in enumerate(arguments)}
            return evaluate(Apply(function, tuple(Symbol(name) for name in inner)), inner)
    return evaluate(expr, names)


def accumulated(aggregate: str, values: Sequence[Value], options: Sequence[Fraction] = ()) -> Value:
    """Apply an accumulator or a search to the values of a window."""
    if any(found is None for found in values):
        return None
    if in_letters(aggregate):
        return cast(Value, value_of(aggregate, values))
    if aggregate in ACCUMULATORS:
        return cast(Value, ACCUMULATORS[aggregate].fold(values))
    return cast(Value, SEARCHES[aggregate].find(values, *options))


def _aggregates(expr: Expr) -> list[WindowAggregation]:
    return [part for part in walk(expr) if isinstance(part, WindowAggregation)]


def uniform_parts(expr: Expr) -> list[Expr]:
    """Return the maximal subexpressions that depend on the element alone.

    They use neither positions nor values of the window.

    >>> from slicemill.model.parse import parse
    >>> uniform_parts(parse("i*log(x)"))
    [log(x)]
    """
    parts = list(walk(expr))
    if not any(isinstance(part, Symbol) and part.name != "pi" for part in parts):
        return [expr] if any(isinstance(part, Parameter) for part in parts) else []
    if isinstance(expr, Apply) and expr.function == "where":
        # A branch that is not evaluated needs no value.
        return uniform_parts(expr.arguments[0])
    return [part for child in children(expr) for part in uniform_parts(child)]

"""Model: an expression over windows, split into cores and finalisation (C20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from typing import cast

from slicemill.catalog.aggregates import AggregateDefinition, Formula
from slicemill.extensions.models.cores import Classification, Core, classify, collect, worst
from slicemill.extensions.models.flow import in_letters, value_of
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.parse import RESERVED, parse
from slicemill.extensions.models.registration import PROVIDER
from slicemill.extensions.models.scalars import Value, evaluate, exact
from slicemill.extensions.models.terms import (
    AGE,
    CONDITIONS,
    POSITION,
    Apply,
    Expr,
    Let,
    ModelError,
    Parameter,
    Symbol,
    WindowAggregation,
    children,
    expression_text,
    replace_parts,
    walk,
)

# Reference semantics of models: the expression evaluated over one window.
#
# The arithmetic is exact where possible. Expressions are not rearranged and no state is stored, so all
# other implementations are tested against this module. A parameter, or a subexpression of parameters alone,
# may have no value for an element. Under policy `skip` such an element is not part of the vector: `n` does
# not count it and `i` skips it (C24). Under policy `poison` the value of the window is then NULL.


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

    >>> from slicemill.extensions.models.parse import parse
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
            return apply_aggregate(name, found, options)
        case Let(name, bound, body):
            return _value(body, window, {**names, name: _value(bound, window, names)})
        case Apply(function, arguments):
            inner = {f"v{k}": _value(argument, window, names) for k, argument in enumerate(arguments)}
            return evaluate(Apply(function, tuple(Symbol(name) for name in inner)), inner)
    return evaluate(expr, names)


def apply_aggregate(aggregate: str, values: Sequence[Value], options: Sequence[Fraction] = ()) -> Value:
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
    """Return the maximal subexpressions that depend only on the element.

    They use neither positions nor values of the window.

    >>> from slicemill.extensions.models.parse import parse
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


@dataclass(frozen=True)
class Model(Formula):
    """An expression over windows, its cores and its finalisation.

    `cores` are the parts that read the window, without duplicates. `result` is the finalisation: an
    expression in which `Symbol("c0")`, `Symbol("c1")`, … are the cores' values. `lets` are values of the
    whole window that blocked cores need, in the same form and in order of evaluation. `constants` are the
    named numbers of the text.

    >>> model = expression("sum(x^2)/n - (sum(x)/n)^2")
    >>> model.parameters, [str(core) for core in model.cores]
    (('x',), ['sum(x^2)', 'sum(1)', 'sum(x)'])
    >>> model.value([{"x": 2}, {"x": 4}])
    Fraction(1, 1)
    """

    text: str
    parsed: Expr
    parameters: tuple[str, ...]
    nulls: Nulls
    cores: tuple[Core, ...]
    result: Expr
    lets: tuple[tuple[str, Expr], ...]
    constants: tuple[tuple[str, Fraction], ...] = ()
    provider = PROVIDER

    @cached_property
    def classes(self) -> tuple[Classification, ...]:
        """The class of each core."""
        return tuple(classify(core) for core in self.cores)

    @cached_property
    def rewrites(self) -> tuple[tuple[str, str], ...]:
        """The rules used to find the cores, with their effects (C22)."""
        return tuple(collect(self.parsed).effects)

    @cached_property
    def classification(self) -> Classification:
        return worst(self.classes)

    @property
    def finalisation(self) -> str:
        """Return the finalisation as a formula of the cores."""
        return self.in_cores(self.result)

    def in_cores(self, value: Expr) -> str:
        """Return an expression over core values as a formula of the cores."""
        named: dict[str, Expr] = {
            f"c{k}": Symbol("n")
            if core.counts
            else WindowAggregation(core.aggregate, core.argument, core.options)
            for k, core in enumerate(self.cores)
        }
        return expression_text(
            replace_parts(value, lambda e: named.get(e.name) if isinstance(e, Symbol) else None)
        )

    @property
    def is_condition(self) -> bool:
        """Return True if the model's value is a boolean."""
        if isinstance(self.parsed, WindowAggregation):
            return self.parsed.name in ("all", "any") or self.parsed.name.startswith(("Ac[and]", "Ac[or]"))
        return isinstance(self.parsed, Apply) and self.parsed.function in CONDITIONS

    @property
    def uses_age(self) -> bool:
        """Return True if the model reads timestamps."""
        return AGE in walk(self.parsed)

    @property
    def uses_position(self) -> bool:
        """Return True if the model reads positions of elements."""
        return POSITION in walk(self.parsed)

    def value(self, rows: Sequence[Mapping[str, object]], stamps: Sequence[object] | None = None) -> Value:
        """Evaluate the model over one window by its definition.

        Without timestamps, elements are one unit of time apart.
        """
        return value(self.parsed, rows, stamps, self.nulls)

    def check_window(self, *, counts_rows: bool) -> None:
        """Raise an error for positions in a window by time (C6)."""
        if self.uses_position and not counts_rows:
            raise ModelError(
                f"the model {self.text} uses position i, and a window of time has no fixed number of "
                f"positions: use ROWS … PRECEDING, or weights by age"
            )


def expression(
    text: str,
    parameters: Sequence[str] | None = None,
    *,
    nulls: Nulls | str = Nulls.SKIP,
    constants: Mapping[str, Fraction] | None = None,
) -> Model:
    """Compile a model from its text.

    `parameters` default to the columns of the text, in order of appearance. `constants` are named numbers.
    The text may also use the paper's letters.
    """
    if in_letters(text):
        from slicemill.extensions.models.letters import from_letters

        parsed = from_letters(text, parameters or ("x",)).expr
        if not any(map(in_letters, _aggregate_names(parsed))):
            text = expression_text(parsed)
            parsed = parse(text, constants)
    else:
        parsed = parse(text, constants)
    used = tuple(dict.fromkeys(part.name for part in walk(parsed) if isinstance(part, Parameter)))
    wanted = used if parameters is None else tuple(parameters)
    if len(set(wanted)) < len(wanted):
        raise ModelError(f"the parameters ({', '.join(wanted)}) name a column twice")
    for name in wanted:
        if name in RESERVED:
            raise ModelError(f"{name} means something else in a model: give the parameter another name")
    unknown = [name for name in used if name not in wanted]
    if unknown:
        given = ", ".join(wanted) or "none"
        raise ModelError(f"the model uses {', '.join(unknown)}, but its parameters are {given}")
    collected = collect(parsed)
    cores = tuple(collected.cores)
    lets, named = tuple(collected.lets.items()), tuple((constants or {}).items())
    return Model(text, parsed, wanted, Nulls(nulls), cores, collected.result, lets, named)


def models_of(definition: AggregateDefinition) -> tuple[Model, ...]:
    """Return the models that an aggregate evaluates."""
    return cast(tuple[Model, ...], definition.formulas)


def _aggregate_names(expr: Expr) -> list[str]:
    return [part.name for part in walk(expr) if isinstance(part, WindowAggregation)]


def shared_cores(models: Sequence[Model]) -> tuple[Core, ...]:
    """Return the distinct cores of several models over one window."""
    return tuple(dict.fromkeys(core for model in models for core in model.cores))

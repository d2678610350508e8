"""Compiled model: a formula over a window, split into core statistics and a final formula (C20).

A core statistic is a sum, count or extreme over the window. The final formula computes the model's result
from the values of the core statistics. An element is a row of the window that has values for all columns of
the model.
"""

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

# Reference semantics of models: evaluation of the formula over one window
#
# The arithmetic is exact where possible. Formulas are not rearranged and no state is stored, so that all
# other implementations can be tested against these functions. A column, or an expression of columns, may have
# no value for a row (NULL, 1/0). With nulls = 'skip', such a row is not an element: `n` does not count the
# row and positions skip it (C24). With nulls = 'poison', the result of a window with such a row is NULL.


class Nulls(StrEnum):
    """Effect of a row in which an expression of the model has no value (option `nulls`)."""

    SKIP = "skip"
    POISON = "poison"


def value(
    expr: Expr,
    rows: Sequence[Mapping[str, object]],
    stamps: Sequence[object] | None = None,
    nulls: Nulls = Nulls.SKIP,
) -> Value:
    """Evaluate a model's formula over the rows of one window, by its definition.

    >>> from slicemill.extensions.models.parse import parse
    >>> value(parse("sum(x^2)/n"), [{"x": 1}, {"x": None}, {"x": 2}])
    Fraction(5, 2)
    """
    elements = [{name: exact(number) for name, number in row.items()} for row in rows]
    times = [Fraction(i) for i in range(len(rows))] if stamps is None else [exact(t) for t in stamps]
    wanted = [part for aggregate in _aggregates(expr) for part in uniform_parts(aggregate.argument)]
    included = [
        k for k, element in enumerate(elements) if all(evaluate(e, element) is not None for e in wanted)
    ]
    if nulls is Nulls.POISON and len(included) < len(elements):
        return None
    window = [
        {**elements[k], "i": Fraction(i), "n": Fraction(len(included)), "age": times[-1] - times[k]}  # type: ignore[operator]
        for i, k in enumerate(included, start=1)
    ]
    return _value(expr, window, {"n": Fraction(len(included))})


def _value(expr: Expr, window: Sequence[Mapping[str, Value]], names: Mapping[str, Value]) -> Value:
    match expr:
        case WindowAggregation(name, argument, options):
            # An aggregate that uses a NULL `let` value is NULL, even if the window has no elements.
            if any(names.get(part.name, 0) is None for part in walk(argument) if isinstance(part, Symbol)):
                return None
            values = [evaluate(argument, {**names, **element}) for element in window]
            return apply_aggregate(name, values, options)
        case Let(name, bound, body):
            return _value(body, window, {**names, name: _value(bound, window, names)})
        case Apply(function, arguments):
            inner = {f"v{k}": _value(argument, window, names) for k, argument in enumerate(arguments)}
            return evaluate(Apply(function, tuple(Symbol(name) for name in inner)), inner)
    return evaluate(expr, names)


def apply_aggregate(aggregate: str, values: Sequence[Value], options: Sequence[Fraction] = ()) -> Value:
    """Apply a model's aggregate, such as sum or max, to the values of a window."""
    if any(each is None for each in values):
        return None
    if in_letters(aggregate):
        return cast(Value, value_of(aggregate, values))
    if aggregate in ACCUMULATORS:
        return cast(Value, ACCUMULATORS[aggregate].fold(values))
    return cast(Value, SEARCHES[aggregate].find(values, *options))


def _aggregates(expr: Expr) -> list[WindowAggregation]:
    return [part for part in walk(expr) if isinstance(part, WindowAggregation)]


def uniform_parts(expr: Expr) -> list[Expr]:
    """Return the largest subexpressions that depend only on the columns of an element.

    These subexpressions use neither positions nor values of the window.

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
    """Compiled model: the formula's text, its core statistics, and the final formula of their values.

    `cores` are the core statistics: the distinct sums, counts and extremes over the window. `result` is the
    final formula, in which `Symbol("c0")`, `Symbol("c1")`, … are the values of the core statistics. `lets`
    are values of the whole window that other core statistics need, in the same form and in order of
    evaluation. `constants` are the named numbers of the text.

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
        """The class of each core statistic: how it can be updated when the window slides."""
        return tuple(classify(core) for core in self.cores)

    @cached_property
    def rewrites(self) -> tuple[tuple[str, str], ...]:
        """The rewrite rules that were used to extract the core statistics, with their effects (C22)."""
        return tuple(collect(self.parsed).effects)

    @cached_property
    def classification(self) -> Classification:
        return worst(self.classes)

    @property
    def finalisation(self) -> str:
        """Return the final formula as text, in which core statistics are written out, as in sum(x)/n."""
        return self.core_text(self.result)

    def core_text(self, value: Expr) -> str:
        """Return an expression as text, with core statistics such as sum(x) in place of `c0`, `c1`, …"""
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
        """Return True if the model uses `age`, the time from an element to the newest element."""
        return AGE in walk(self.parsed)

    @property
    def uses_position(self) -> bool:
        """Return True if the model uses positions of elements in the window."""
        return POSITION in walk(self.parsed)

    def value(self, rows: Sequence[Mapping[str, object]], stamps: Sequence[object] | None = None) -> Value:
        """Evaluate the model over the rows of one window, by its definition.

        `stamps` are the times of the rows. Without `stamps`, the rows are one second apart.
        """
        return value(self.parsed, rows, stamps, self.nulls)

    def check_window(self, *, counts_rows: bool) -> None:
        """Raise an error if the model uses row positions and the window is a time window (C6)."""
        if self.uses_position and not counts_rows:
            raise ModelError(
                f"the model {self.text} uses position i, and a time window has no fixed number of "
                f"positions: use ROWS … PRECEDING, or weights by age"
            )


def expression(
    text: str,
    parameters: Sequence[str] | None = None,
    *,
    nulls: Nulls | str = Nulls.SKIP,
    constants: Mapping[str, Fraction] | None = None,
) -> Model:
    """Compile a model from the text of its formula.

    `parameters` default to the columns of the text, in order of appearance. `constants` are named numbers.
    The text may also be a chain of operator letters, such as Ac[+] · T[x^2] for sum(x^2).
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
        declared = ", ".join(wanted) or "none"
        raise ModelError(f"the model uses {', '.join(unknown)}, but its parameters are {declared}")
    collected = collect(parsed)
    cores = tuple(collected.cores)
    lets, named = tuple(collected.lets.items()), tuple((constants or {}).items())
    return Model(text, parsed, wanted, Nulls(nulls), cores, collected.result, lets, named)


def models_of(definition: AggregateDefinition) -> tuple[Model, ...]:
    """Return the models that an aggregate definition evaluates together."""
    return cast(tuple[Model, ...], definition.formulas)


def _aggregate_names(expr: Expr) -> list[str]:
    return [part.name for part in walk(expr) if isinstance(part, WindowAggregation)]


def shared_cores(models: Sequence[Model]) -> tuple[Core, ...]:
    """Return the distinct core statistics (sums, counts, extremes) of several models over one window."""
    return tuple(dict.fromkeys(core for model in models for core in model.cores))

"""Model: an expression over windows, split into cores and finalisation (C20)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from slicemill.model import naive
from slicemill.model.classify import Classification, classify, worst
from slicemill.model.collect import collect
from slicemill.model.core import Core
from slicemill.model.flow import in_letters
from slicemill.model.naive import Nulls
from slicemill.model.parse import RESERVED, parse
from slicemill.model.scalars import Value
from slicemill.model.terms import (
    AGE,
    CONDITIONS,
    POSITION,
    Apply,
    Expr,
    ModelError,
    Parameter,
    Symbol,
    WindowAggregation,
    shown,
    transformed,
    walk,
)


@dataclass(frozen=True)
class Model:
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
        return shown(transformed(value, lambda e: named.get(e.name) if isinstance(e, Symbol) else None))

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
        return naive.value(self.parsed, rows, stamps, self.nulls)

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
        from slicemill.model.letters import from_letters

        parsed = from_letters(text, parameters or ("x",)).expr
        if not any(map(in_letters, _aggregate_names(parsed))):
            text = shown(parsed)
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


def _aggregate_names(expr: Expr) -> list[str]:
    return [part.name for part in walk(expr) if isinstance(part, WindowAggregation)]


def shared_cores(models: Sequence[Model]) -> tuple[Core, ...]:
    """Return the distinct cores of several models over one window."""
    return tuple(dict.fromkeys(core for model in models for core in model.cores))

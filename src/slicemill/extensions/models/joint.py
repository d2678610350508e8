"""Several models over one window, which share equal core statistics (R9).

A model is a formula over a window. A core statistic (`Core`) is a sum, count or extreme over the window from
which the model's result is computed. A row of the window is an element of a model if all inputs of the model
have a value: its columns, and functions such as log that are undefined for some numbers. Models share equal
core statistics if the same rows are their elements. While every column of every row is a finite number
(`finite`), conditions on columns are ignored. Then mean(x) and slope(x, y) share n and the sum of x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from slicemill.extensions.models.cores import Core, centre_formula, collect, core_number
from slicemill.extensions.models.model import Model, uniform_parts
from slicemill.extensions.models.terms import (
    DIMENSION,
    Apply,
    Expr,
    Number,
    Parameter,
    Symbol,
    WindowAggregation,
    expression_text,
    replace_parts,
    walk,
)

_NOT_EVERYWHERE = frozenset({"/", "%", "log", "sqrt", "exp"})
_WHOLE = ("xor", "gcd")


@dataclass(frozen=True, slots=True)
class Condition:
    """Condition that an expression has a value. With `whole`, the value must be a 64-bit integer."""

    of: Expr
    whole: bool = False


@dataclass(frozen=True, slots=True)
class FilteredCore:
    """Core statistic (sum, count or extreme) over the rows that satisfy conditions.

    If `centred`, it aggregates distances from pivots, which are numbers close to the elements.
    """

    core: Core
    conditions: frozenset[Condition]
    centred: bool = False

    def __str__(self) -> str:
        return f"{self.core} about a pivot" if self.centred else str(self.core)


@dataclass(slots=True)
class JointModels:
    """Several models over one window, with a common list of core statistics.

    `indices[m]` are the indexes in `cores` of the core statistics of model m. `numbers[m]` are their indexes
    in the model. `results` and `lets` are formulas in which `c0`, `c1` and so on are the values of `cores`.
    `u0` is the value of the sum 0 over distances from a pivot. Names in `lets` are the texts of their
    expressions.
    """

    models: tuple[Model, ...]
    cores: list[FilteredCore] = field(default_factory=list)
    conditions: list[frozenset[Condition]] = field(default_factory=list)  # conditions of each model
    indices: list[list[int]] = field(default_factory=list)
    numbers: list[list[int]] = field(default_factory=list)
    lets: dict[str, Expr] = field(default_factory=dict)
    results: list[Expr] = field(default_factory=list)

    @property
    def condition_sets(self) -> tuple[frozenset[Condition], ...]:
        """Return the distinct sets of conditions that rows must satisfy to be elements of the models."""
        return tuple(dict.fromkeys(self.conditions))

    def models_using(self, index: int) -> list[int]:
        """Return the indexes of the models that use the core statistic at an index."""
        return [number for number, indices in enumerate(self.indices) if index in indices]


def joint(models: Sequence[Model], *, finite: bool) -> JointModels:
    """Merge models over one window, so that equal core statistics are stored once.

    With `finite`, all columns are assumed to be finite numbers.

    >>> from slicemill.extensions.models.model import expression
    >>> models = [expression("mean(x)"), expression("slope(x, y)")]
    >>> [len(joint(models, finite=finite).cores) for finite in (True, False)]
    [5, 7]
    """
    merged = JointModels(tuple(models))
    for model in models:
        conditions = frozenset(
            condition
            for condition in conditions_of(model)
            if not (finite and isinstance(condition.of, Parameter))
        )
        merged.conditions.append(conditions)
        _CoreAssigner(merged, model, conditions).assign()
    return merged


class _CoreAssigner:
    """Adds the core statistics of one model to the common list of several models."""

    def __init__(self, into: JointModels, model: Model, conditions: frozenset[Condition]) -> None:
        self._into, self._model, self._conditions = into, model, conditions
        self._lets = {name: centre_formula(value, model.cores) for name, value in model.lets}
        self._result = centre_formula(model.result, model.cores)
        self._indices: dict[tuple[int, bool], int] = {}

    def assign(self) -> None:
        used = {part for formula in (self._result, *self._lets.values()) for part in walk(formula)}
        wanted = [
            (number, near)
            for number in range(len(self._model.cores))
            for near in (False, True)
            if near == (Symbol(f"d{number}") in used) or (not near and Symbol(f"c{number}") in used)
        ]
        self._into.numbers.append([number for number, _ in wanted])
        self._into.indices.append([self._core(number, near) for number, near in wanted])
        self._into.results.append(self._named(self._result))

    def _core(self, number: int, near: bool) -> int:
        if (number, near) not in self._indices:
            core = self._model.cores[number]
            if core.scalars:
                names = {name: self._let(name) for name in core.scalars}
                transform = replace_parts(core.transform, lambda e: _symbol(e, names))
                core = replace(core, transform=transform, scalars=tuple(names.values()))
            filtered, cores = FilteredCore(core, self._conditions, near), self._into.cores
            if filtered not in cores:
                cores.append(filtered)
            self._indices[number, near] = cores.index(filtered)
        return self._indices[number, near]

    def _let(self, name: str) -> str:
        """Add a `let` value under the text of its expression as its name, which is unique across models."""
        value = self._named(self._lets[name])
        text = expression_text(replace_parts(value, self._in_full))
        text = f"({text})" if isinstance(value, Apply) else text
        self._into.lets[text] = value
        return text

    def _in_full(self, part: Expr) -> Expr | None:
        number = core_number(part)
        if number is None:
            return None
        core = self._into.cores[number].core
        return DIMENSION if core.counts else WindowAggregation(core.aggregate, core.argument, core.options)

    def _named(self, expr: Expr) -> Expr:
        def change(part: Expr) -> Expr | None:
            if not isinstance(part, Symbol):
                return None
            if part.name in self._lets:
                return Symbol(self._let(part.name))
            number = core_number(part)
            if number is None:
                return None
            kind = part.name[0]
            return Symbol(f"{'u' if kind == 'u' else 'c'}{self._core(number, kind == 'd')}")

        return replace_parts(expr, change)


def _symbol(expr: Expr, names: Mapping[str, str]) -> Expr | None:
    return Symbol(names[expr.name]) if isinstance(expr, Symbol) and expr.name in names else None


def with_columns(model: Model, names: Mapping[str, str], parameters: Sequence[str]) -> Model:
    """Rename the columns of a model by `names`, and extract its core statistics again."""

    def change(part: Expr) -> Expr | None:
        return Parameter(names[part.name]) if isinstance(part, Parameter) else None

    parsed = replace_parts(model.parsed, change)
    collected = collect(parsed)
    return replace(
        model,
        parsed=parsed,
        parameters=tuple(parameters),
        cores=tuple(collected.cores),
        result=collected.result,
        lets=tuple(collected.lets.items()),
    )


def conditions_of(model: Model) -> frozenset[Condition]:
    """Return the conditions that a row must satisfy so that a model includes it in its aggregates."""
    conditions: set[Condition] = set()
    for core in model.cores:
        for part in uniform_parts(core.transform):
            conditions |= {Condition(needed) for needed in _requirements(part)}
        if core.aggregate in _WHOLE and not core.blocked:
            conditions.add(Condition(core.transform, whole=True))
    return frozenset(conditions)


def _requirements(expr: Expr) -> frozenset[Expr]:
    """Return the parts of an expression that may have no value: columns, and functions such as log."""
    match expr:
        case Parameter():
            return frozenset({expr})
        case Apply("where", (condition, yes, no)):
            # A branch that is not evaluated needs no value.
            needed = _requirements(condition)
            return needed if _requirements(yes) | _requirements(no) <= needed else needed | {expr}
        case Apply(function, arguments):
            inside = frozenset[Expr]().union(*map(_requirements, arguments))
            return inside | {expr} if _may_fail(function, arguments) else inside
    return frozenset()


def _may_fail(function: str, arguments: Sequence[Expr]) -> bool:
    if function == "^":
        exponent = arguments[1]
        return not (isinstance(exponent, Number) and exponent.value.denominator == 1 and exponent.value >= 0)
    return function in _NOT_EVERYWHERE

"""Built-in SQL aggregates with their types.

All built-in aggregates are blocking: they emit at the end of their input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from slicemill import types as t
from slicemill.catalog.argument_range import ArgumentRange, parse_range
from slicemill.catalog.expressions import Expr
from slicemill.types import Kind, Type


@dataclass(frozen=True, slots=True)
class BuiltinAggregate:
    """Built-in aggregate, with its parameters and result type.

    `declared` lists the parameters in the notation of `argument_range`. `algebraic` aggregates can be
    computed from panes (M35). The last `optional` parameters may be omitted. A parameter with a range must be
    the same constant for all tuples, and `hint` is added to errors about it.
    """

    name: str
    declared: tuple[str, ...]
    result: Callable[[Type], Type]
    algebraic: bool = True
    takes_star: bool = False
    takes_distinct: bool = False
    optional: int = 0
    hint: str = ""

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(parameter.partition("{")[0] for parameter in self.declared)

    @property
    def ranges(self) -> tuple[ArgumentRange | None, ...]:
        return tuple(parse_range(parameter) for parameter in self.declared)

    @property
    def constant(self) -> int | None:
        """Return the index of the first constant parameter, or None.

        All parameters after it are constant too.
        """
        return next((index for index, range_ in enumerate(self.ranges) if range_ is not None), None)

    def stored(self, arguments: Sequence[Expr]) -> Sequence[Expr]:
        """Return the arguments of a call that are not constant parameters."""
        return arguments[: self.constant]

    @property
    def usage(self) -> str:
        required = len(self.parameters) - self.optional
        words = [p if i < required else f"[{p}]" for i, p in enumerate(self.parameters)]
        return f"call it as {self.name}({', '.join(words)})"


def _sum_type(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        assert type_.precision is not None and type_.scale is not None
        return t.decimal(type_.precision + 10, type_.scale)
    return (
        t.BIGINT if type_.kind in (Kind.INT, Kind.BIGINT) else type_ if type_.kind is Kind.ANY else t.DOUBLE
    )


def _avg_type(type_: Type) -> Type:
    if type_.kind is Kind.DECIMAL:
        assert type_.precision is not None and type_.scale is not None
        return t.decimal(type_.precision + 4, type_.scale + 4)
    return t.DOUBLE


def _same(type_: Type) -> Type:
    return type_


def _double(_: Type) -> Type:
    return t.DOUBLE


def _percentile(name: str) -> BuiltinAggregate:
    hint = "0.5 is the median, 0.99 the value that 1 % exceed"
    return BuiltinAggregate(name, ("number", "number{0..1}"), _double, algebraic=False, hint=hint)


def _listagg(name: str) -> BuiltinAggregate:
    return BuiltinAggregate(name, ("string", "string{any}"), lambda _: t.VARCHAR, algebraic=False, optional=1)


def _collect(name: str, takes_distinct: bool = False) -> BuiltinAggregate:
    return BuiltinAggregate(name, ("element",), t.list_of, algebraic=False, takes_distinct=takes_distinct)


BUILTINS: dict[str, BuiltinAggregate] = {
    aggregate.name: aggregate
    for aggregate in (
        BuiltinAggregate("count", ("any",), lambda _: t.BIGINT, takes_star=True, takes_distinct=True),
        BuiltinAggregate("sum", ("number",), _sum_type),
        BuiltinAggregate("avg", ("number",), _avg_type),
        BuiltinAggregate("mean", ("number",), _avg_type),
        BuiltinAggregate("min", ("any",), _same),
        BuiltinAggregate("max", ("any",), _same),
        BuiltinAggregate("first", ("any",), _same),
        BuiltinAggregate("last", ("any",), _same),
        BuiltinAggregate("variance", ("number",), _double),
        BuiltinAggregate("var_samp", ("number",), _double),
        BuiltinAggregate("var_pop", ("number",), _double),
        BuiltinAggregate("stddev", ("number",), _double),
        BuiltinAggregate("stddev_samp", ("number",), _double),
        BuiltinAggregate("stddev_pop", ("number",), _double),
        BuiltinAggregate("skewness", ("number",), _double),
        BuiltinAggregate("kurtosis", ("number",), _double),
        BuiltinAggregate("median", ("number",), _double, algebraic=False),
        _percentile("percentile"),
        _percentile("quantile"),
        _listagg("listagg"),
        _listagg("string_agg"),
        BuiltinAggregate("min_by", ("any", "any"), _same, algebraic=False),
        BuiltinAggregate("max_by", ("any", "any"), _same, algebraic=False),
        BuiltinAggregate(
            "nth_value", ("any", "integer{1..}"), _same, algebraic=False, hint="1 is the oldest tuple"
        ),
        _collect("collect_list", takes_distinct=True),
        _collect("array_agg", takes_distinct=True),
        _collect("collect_set"),
        BuiltinAggregate("priority_sample", ("any",), _same, algebraic=False),
        BuiltinAggregate("approx_count", ("any",), lambda _: t.BIGINT, algebraic=False),
        BuiltinAggregate("approx_count_if", ("boolean",), lambda _: t.BIGINT, algebraic=False),
    )
}

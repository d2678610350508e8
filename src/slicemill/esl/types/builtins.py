"""Built-in aggregates: SQL's, with their types. All of them block: they answer when their input ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type


@dataclass(frozen=True, slots=True)
class BuiltinAggregate:
    """`parameters` as in the scalar library. `algebraic`: can be computed from panes (M35).

    The last `optional` parameters may be left out. The one at `constant` is the same for all tuples; a share
    is one between 0 and 1.
    """

    name: str
    parameters: tuple[str, ...]
    result: Callable[[Type], Type]
    algebraic: bool = True
    takes_star: bool = False
    takes_distinct: bool = False
    optional: int = 0
    constant: int | None = None
    share: bool = False

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
    return BuiltinAggregate(name, ("number", "number"), _double, algebraic=False, constant=1, share=True)


def _listagg(name: str) -> BuiltinAggregate:
    return BuiltinAggregate(
        name, ("string", "string"), lambda _: t.VARCHAR, algebraic=False, optional=1, constant=1
    )


BUILTINS: dict[str, BuiltinAggregate] = {
    aggregate.name: aggregate
    for aggregate in (
        BuiltinAggregate("count", ("any",), lambda _: t.BIGINT, takes_star=True, takes_distinct=True),
        BuiltinAggregate("sum", ("number",), _sum_type),
        BuiltinAggregate("avg", ("number",), _avg_type),
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
        BuiltinAggregate("median", ("number",), _double, algebraic=False),
        _percentile("percentile"),
        _percentile("quantile"),
        _listagg("listagg"),
        _listagg("string_agg"),
        BuiltinAggregate("min_by", ("any", "any"), _same, algebraic=False),
        BuiltinAggregate("max_by", ("any", "any"), _same, algebraic=False),
        BuiltinAggregate("priority_sample", ("any",), _same, algebraic=False),
        BuiltinAggregate("approx_count", ("any",), lambda _: t.BIGINT, algebraic=False),
        BuiltinAggregate("approx_count_if", ("boolean",), lambda _: t.BIGINT, algebraic=False),
    )
}

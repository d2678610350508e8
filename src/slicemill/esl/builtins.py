"""Built-in aggregates: SQL's, with their types. All of them block: they answer when their input ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slicemill.esl import types as t
from slicemill.esl.types import Kind, Type


@dataclass(frozen=True, slots=True)
class BuiltinAggregate:
    """`parameters` as in the scalar library. `algebraic`: can be computed from panes (M35)."""

    name: str
    parameters: tuple[str, ...]
    result: Callable[[Type], Type]
    algebraic: bool = True
    takes_star: bool = False
    takes_distinct: bool = False


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
    )
}

"""Resolve calls of aggregates and models: definition, arguments and returned columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp

from slicemill.errors import did_you_mean
from slicemill.esl.binder.constants import check_constant
from slicemill.esl.syntax.dialect import to_esl
from slicemill.esl.syntax.errors import Mistake
from slicemill.esl.syntax.nodes import child, span_of
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.esl.types.builtins import BUILTINS
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import ColumnRef, Expr, Literal
from slicemill.esl.types.model import PREDEFINED, ModelTemplate
from slicemill.esl.types.schema import BIGINT, Column, Kind, assignable
from slicemill.model.terms import ModelError
from slicemill.scalar.signatures import fits


@dataclass(frozen=True, slots=True)
class Resolved:
    """Aggregate call with checked arguments.

    `blocking` is set if the aggregate answers only at the end of its input. `written` is the name as called;
    `name` is that of the definition, which for an instance of a model includes the values of its constants.
    """

    name: str
    written: str
    arguments: tuple[Expr, ...]
    distinct: bool
    columns: tuple[Column, ...]
    blocking: bool
    base: AggregateDefinition | None
    window: AggregateDefinition | None
    builtin: bool


def single_column(node: exp.Anonymous, columns: Sequence[Column]) -> ColumnRef:
    """Return the only column of a call used as a value."""
    first, *others = columns
    if others:
        raise Mistake(
            f"{node.name} returns several columns",
            span_of(node),
            f"take one: {to_esl(node)}.{field_of(first)}",
        )
    return ColumnRef.to(first)


def is_aggregate(name: str, catalog: Catalog) -> bool:
    key = name.lower()
    builtin = key in BUILTINS and key not in catalog.functions
    return builtin or key in catalog.models or any(catalog.aggregates(name))


def callable_names(catalog: Catalog) -> list[str]:
    """Return the names of all aggregates, models and user-defined functions, for hints."""
    return [
        *BUILTINS,
        *PREDEFINED,
        *(function.name for function in catalog.functions.values()),
        *(d.name for d in (*catalog.base_aggregates.values(), *catalog.window_aggregates.values())),
        *(model.name for model in catalog.models.values()),
    ]


def resolve_calls(
    node: exp.Anonymous, arguments: Sequence[Expr], catalog: Catalog, over: str = ""
) -> list[Resolved]:
    """Resolve a call to an aggregate, or to a model's results."""
    if child(node, "filter") is not None:
        raise Mistake("FILTER has no place here", span_of(node), "put the condition into a CASE WHEN")
    template = catalog.models.get(node.name.lower())
    if not isinstance(template, ModelTemplate):
        return [_resolved(node, arguments, catalog, over)]
    count = len(arguments) - len(template.constants)
    values = [
        _constant_of(template, name, argument, argument_node)
        for name, argument, argument_node in zip(
            template.constants, arguments[max(count, 0) :], node.expressions[max(count, 0) :], strict=False
        )
    ]
    if len(values) < len(template.constants):
        raise Mistake(
            f"{template.name} takes {len(template.parameters) + len(template.constants)} arguments, "
            f"not {len(arguments)}",
            span_of(node),
            f"it is declared as {template}",
        )
    found = []
    text = over or to_esl(node)
    try:
        for name, result in zip(template.instance_names(values), template.results, strict=True):
            base, window = catalog.declared_versions(name)
            assert base is not None, "an instance goes by its name"
            one = _checked(node, arguments[:count], (base, window), text, template)
            column = Column(result.column, one.columns[0].type).of(text)
            columns = (column,) if result.column else one.columns
            found.append(replace(one, name=name, columns=columns))
    except ModelError as error:
        raise Mistake(f"in {template.name}: {error.what}", span_of(node), error.hint) from None
    return found


def _constant_of(template: ModelTemplate, name: str, argument: Expr, node: exp.Expression) -> Fraction:
    value = argument.value if isinstance(argument, Literal) else None
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not number or not math.isfinite(float(str(value))):
        raise Mistake(
            f"{template.name} wants a number for {name}",
            span_of(node),
            f"it has to be the same for all tuples; it is declared as {template}",
        )
    return Fraction(str(value))


def _resolved(node: exp.Anonymous, arguments: Sequence[Expr], catalog: Catalog, over: str) -> Resolved:
    """Resolve a call of an aggregate.

    Without OVER, a built-in precedes a user's window version of that name.
    """
    base, window = catalog.aggregates(node.name)
    text = over or to_esl(node)
    if not over and base is None and node.name.lower() in BUILTINS:
        window = None
    if base is None and window is None:
        return _builtin(node, arguments, text)
    return _checked(node, arguments, (base, window), text)


def _checked(
    node: exp.Anonymous,
    arguments: Sequence[Expr],
    versions: tuple[AggregateDefinition | None, AggregateDefinition | None],
    text: str,
    template: ModelTemplate | None = None,
) -> Resolved:
    """Check the arguments of a call of a user-defined aggregate or model."""
    base, window = versions
    definition = base or window
    assert definition is not None
    usage = _usage(definition) if template is None else f"it is declared as {template}"
    if _star(node) or child(node, "distinct"):
        raise Mistake(f"{node.name} takes neither * nor DISTINCT", span_of(node), usage)
    if len(arguments) != len(definition.arguments):
        raise Mistake(
            f"{node.name} takes {len(definition.arguments)} arguments, not {len(arguments)}"
            if template is None
            else f"{node.name} takes {len(definition.arguments) + len(template.constants)} arguments, "
            f"not {len(arguments) + len(template.constants)}",
            span_of(node),
            usage,
        )
    for argument, declared, argument_node in zip(
        arguments, definition.arguments, node.expressions, strict=False
    ):
        if not assignable(declared.type, argument.type):
            raise Mistake(
                f"{node.name} wants {declared.type} for {declared.name}, this is {argument.type}",
                span_of(argument_node),
                usage,
            )
    returns = definition.returns.columns
    columns = (
        (Column(text, returns[0].type),)
        if len(returns) == 1
        else tuple(column.of(text) for column in returns)
    )
    blocking = base.blocking if base is not None else True
    return Resolved(
        definition.name, node.name, tuple(arguments), False, columns, blocking, base, window, False
    )


def _star(node: exp.Anonymous) -> bool:
    return len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star)


def _builtin(node: exp.Anonymous, arguments: Sequence[Expr], text: str) -> Resolved:
    star, distinct = _star(node), bool(child(node, "distinct"))
    builtin = BUILTINS[node.name.lower()]
    usage = builtin.usage
    if star and not builtin.takes_star:
        raise Mistake(f"{builtin.name} does not take *", span_of(node), usage)
    if distinct and not builtin.takes_distinct:
        raise Mistake(
            f"{builtin.name} does not take DISTINCT",
            span_of(node),
            "DISTINCT goes with count and collect_list",
        )
    if star:
        return Resolved("count", node.name, (), False, (Column(text, BIGINT),), True, None, None, True)
    most = len(builtin.parameters)
    if not most - builtin.optional <= len(arguments) <= most:
        raise Mistake(f"{builtin.name} does not take {len(arguments)} arguments", span_of(node), usage)
    for argument, wanted, argument_node in zip(arguments, builtin.parameters, node.expressions, strict=False):
        if argument.type.kind is Kind.LIST:
            hint = "take one value of it, element_at(list, 1), or how many there are, size(list)"
            raise Mistake(f"{builtin.name} takes no lists", span_of(argument_node), hint)
        if not fits(wanted, argument.type):
            raise Mistake(
                f"{builtin.name} wants {wanted} here, this is {argument.type}", span_of(argument_node)
            )
    for range_, argument, argument_node in zip(builtin.ranges, arguments, node.expressions, strict=False):
        if range_ is not None and (not isinstance(argument, Literal) or argument.value is None):
            hint = "it has to be the same for all tuples"
            raise Mistake(f"{builtin.name} wants a constant here", span_of(argument_node), hint)
        check_constant(builtin.name, range_, argument, argument_node, builtin.hint)
    type_ = builtin.result(arguments[0].type)
    columns = (Column(text, type_),)
    return Resolved(builtin.name, node.name, tuple(arguments), distinct, columns, True, None, None, True)


def field_of(column: Column) -> str:
    """Return the name of a returned column without its call."""
    return column.origin.column if column.origin is not None else column.name


def read_field(node: exp.Dot, columns: Sequence[Column] | None) -> Expr:
    """Return the column that `call.column` reads."""
    if columns is None:
        raise Mistake("this has no fields", span_of(node))
    wanted = node.expression.name.lower()
    for column in columns:
        if field_of(column).lower() == wanted:
            return ColumnRef.to(column)
    hint = did_you_mean(wanted, [field_of(column) for column in columns])
    raise Mistake(f"it returns no column {wanted}", span_of(node), hint)


def _usage(definition: AggregateDefinition) -> str:
    return f"it is declared as {definition.name}{definition.arguments}"

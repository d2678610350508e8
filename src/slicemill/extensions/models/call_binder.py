"""Bind calls of models that have constants or several results.

Such a call is bound to one model per result, in which the constants are numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from sqlglot import exp

from slicemill.binder.calls import ResolvedCall, checked_call
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr, Literal
from slicemill.extensions.models.definition import ModelTemplate
from slicemill.extensions.models.terms import ModelError
from slicemill.sql.errors import StatementError
from slicemill.sql.nodes import span_of
from slicemill.types import Column


def bind_call(
    template: ModelTemplate, node: exp.Anonymous, arguments: Sequence[Expr], catalog: Catalog, text: str
) -> list[ResolvedCall]:
    """Bind a call of a model with constants, to one single-result model per result."""
    count = len(arguments) - len(template.constants)
    values = [
        _constant_of(template, name, argument, argument_node)
        for name, argument, argument_node in zip(
            template.constants, arguments[max(count, 0) :], node.expressions[max(count, 0) :], strict=False
        )
    ]
    if len(values) < len(template.constants):
        raise StatementError(
            f"{template.name} takes {len(template.parameters) + len(template.constants)} arguments, "
            f"not {len(arguments)}",
            span_of(node),
            f"it is declared as {template}",
        )
    calls = []
    try:
        for name, result in zip(template.instance_names(values), template.results, strict=True):
            versions = catalog.declared_versions(name)
            usage = f"it is declared as {template}"
            call = checked_call(node, arguments[:count], versions, text, usage, len(template.constants))
            column = Column(result.column, call.columns[0].type).of(text)
            columns = (column,) if result.column else call.columns
            calls.append(replace(call, name=name, columns=columns))
    except ModelError as error:
        raise StatementError(f"in {template.name}: {error.what}", span_of(node), error.hint) from None
    return calls


def _constant_of(template: ModelTemplate, name: str, argument: Expr, node: exp.Expression) -> Fraction:
    value = argument.value if isinstance(argument, Literal) else None
    number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not number or not math.isfinite(float(str(value))):
        raise StatementError(
            f"{template.name} needs a constant number for {name}",
            span_of(node),
            f"write a literal, which is the same for all tuples; it is declared as {template}",
        )
    return Fraction(str(value))

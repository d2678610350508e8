"""Calls of models: their arguments, and state shared between models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slicemill.esl.render.expressions import render
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.expression import ColumnRef, Expr
from slicemill.esl.types.query import WindowCall
from slicemill.esl.types.relation import AggregateCall
from slicemill.model.joint import JointModels, joint, with_columns
from slicemill.model.model import Model


@dataclass(frozen=True, slots=True)
class Asked:
    """Model and its arguments.

    A model that uses age has the time as last argument.
    """

    model: Model
    arguments: tuple[Expr, ...]

    @property
    def at(self) -> Expr | None:
        return self.arguments[-1] if self.model.uses_age else None

    def over(self, arguments: Sequence[Expr]) -> Model:
        """Return the model over these columns, which include its own arguments.

        Columns are matched by the text of the expression, not by position. So the form of the model's cores,
        and every bit of its result, is independent of the other models.
        """
        own = dict(zip(self.model.parameters, map(argument_name, self.arguments), strict=False))
        return with_columns(self.model, own, [argument_name(argument) for argument in arguments])


def asked_by(call: WindowCall | AggregateCall, catalog: Catalog) -> Asked | None:
    """Return the model that a call evaluates; None for other aggregates."""
    base, _ = catalog.aggregates(call.name)
    if call.distinct or base is None or base.model is None:
        return None
    return Asked(base.model, call.arguments)


def argument_name(argument: Expr) -> str:
    """Return the name of an argument in the cores of a model.

    >>> from slicemill.esl.types.schema import DOUBLE
    >>> argument_name(ColumnRef("price", DOUBLE))
    'price'
    """
    text = render(argument)
    return text if isinstance(argument, ColumnRef) else f"({text})"


def jointly(asked: Sequence[Asked]) -> JointModels:
    """Return the joint state of models over one window.

    All arguments must be finite numbers.
    """
    return joint([each.over(each.arguments) for each in asked], finite=True)


def go_together(others: Sequence[Asked], asked: Asked) -> bool:
    """Return True if a model can share a window with others.

    Models that use age must use the same time.
    """
    times = {each.at for each in (*others, asked)}
    return len(times - {None}) <= 1

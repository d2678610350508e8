"""Calls of models: which model a query asks for, of what, and what several of them have in common."""

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
    """A model, and what it is given for its parameters; one that goes by age is given the time last."""

    model: Model
    arguments: tuple[Expr, ...]

    @property
    def at(self) -> Expr | None:
        return self.arguments[-1] if self.model.uses_age else None

    def over(self, arguments: Sequence[Expr]) -> Model:
        """The model with these for parameters, which its own arguments are among.

        They go by their text, not by their places: so the form of its cores, and with it every bit of the
        result, does not depend on who else asks.
        """
        own = dict(zip(self.model.parameters, map(argument_name, self.arguments), strict=False))
        return with_columns(self.model, own, [argument_name(argument) for argument in arguments])


def asked_by(call: WindowCall | AggregateCall, catalog: Catalog) -> Asked | None:
    """The model that a call asks for; None if it asks for another aggregate."""
    base, _ = catalog.aggregates(call.name)
    if call.distinct or base is None or base.model is None:
        return None
    return Asked(base.model, call.arguments)


def argument_name(argument: Expr) -> str:
    """What cores call an argument.

    >>> from slicemill.esl.types.schema import DOUBLE
    >>> argument_name(ColumnRef("price", DOUBLE))
    'price'
    """
    text = render(argument)
    return text if isinstance(argument, ColumnRef) else f"({text})"


def jointly(asked: Sequence[Asked]) -> JointModels:
    """What is kept for models over one window, as long as all they are given are numbers."""
    return joint([each.over(each.arguments) for each in asked], finite=True)


def go_together(others: Sequence[Asked], asked: Asked) -> bool:
    """Can a model be run with others over its window? Those that go by age must go by the same time."""
    times = {each.at for each in (*others, asked)}
    return len(times - {None}) <= 1

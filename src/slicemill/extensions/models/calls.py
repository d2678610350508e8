"""Calls of models: arguments, state shared between several models, and row-by-row evaluation.

A model is a formula over a window, called like an aggregate. Its core statistics are the sums, counts and
extremes over the window from which its result is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from slicemill.aggregates.definition import Returned
from slicemill.aggregates.frames import Args, WindowFrame
from slicemill.aggregates.joint import joint_call as joint_call_of
from slicemill.aggregates.udf.interpreter import row_converter
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.extensions.models.joint import JointModels, joint, with_columns
from slicemill.extensions.models.model import Model, models_of
from slicemill.functions.render import render

if TYPE_CHECKING:
    from slicemill.extensions.models.compiler.together import ModelCalls
    from slicemill.extensions.models.cost import CoreCosts


@dataclass(frozen=True, slots=True)
class ModelCall:
    """Call of a model: the model and the expressions of its arguments.

    A model that uses `age` has the tuple's timestamp as its last argument.
    """

    model: Model
    arguments: tuple[Expr, ...]

    @property
    def at(self) -> Expr | None:
        return self.arguments[-1] if self.model.uses_age else None

    def shares_with(self, others: Sequence[Any]) -> bool:
        return all(isinstance(other, ModelCall) for other in others) and can_share_window(others, self)

    def together(
        self,
        calls: Sequence[Any],
        frame: WindowFrame | None,
        arguments: tuple[Expr, ...] | None = None,
        costs: CoreCosts | None = None,
    ) -> ModelCalls:
        from slicemill.extensions.models.compiler.together import model_calls

        return model_calls(tuple(calls), frame, arguments, costs)

    def over(self, arguments: Sequence[Expr]) -> Model:
        """Rename the model's parameters to the shared argument columns of several models.

        Columns are matched by the text of the argument expression, not by position. So the core statistics of
        the model, and every bit of its result, are independent of the other models.
        """
        names = dict(zip(self.model.parameters, map(argument_name, self.arguments), strict=False))
        return with_columns(self.model, names, [argument_name(argument) for argument in arguments])


def model_call_of(call: WindowCall | AggregateCall, catalog: Catalog) -> ModelCall | None:
    """Return the model that a call evaluates, or None for other aggregates."""
    joint_call = joint_call_of(call, catalog)
    return joint_call if isinstance(joint_call, ModelCall) else None


def joint_call(definition: AggregateDefinition, arguments: tuple[Expr, ...]) -> ModelCall:
    return ModelCall(models_of(definition)[0], arguments)


def argument_name(argument: Expr) -> str:
    """Return the column name of a model's argument: a column's own name, or the expression's text.

    >>> from slicemill.types import DOUBLE
    >>> argument_name(ColumnRef("price", DOUBLE))
    'price'
    """
    text = render(argument)
    return text if isinstance(argument, ColumnRef) else f"({text})"


def joint_state(calls: Sequence[ModelCall]) -> JointModels:
    """Return the shared state of several models over one window.

    The arguments are assumed to be finite numbers.
    """
    return joint([each.over(each.arguments) for each in calls], finite=True)


def can_share_window(others: Sequence[ModelCall], call: ModelCall) -> bool:
    """Return True if a model can be evaluated together with other models over one window.

    Models that use `age` must use the same timestamp column.
    """
    times = {each.at for each in (*others, call)}
    return len(times - {None}) <= 1


# Row-by-row evaluation of models


MICROSECONDS = 1_000_000  # microseconds per second, the unit of `age`


class ModelAccumulator:
    """Accumulator that evaluates a model row by row: it reads all stored rows for each result.

    The state is the list of rows. The class serves unbounded streams and windows.
    """

    __slots__ = ("_model", "_rows", "_to_arguments", "_window")

    def __init__(self, definition: AggregateDefinition) -> None:
        self._model = models_of(definition)[0]
        self._window = definition.window
        self._to_arguments = row_converter(definition.arguments)
        self._rows: list[Args] = []

    def initialize(self, args: Args) -> Returned:
        return self.iterate(args)

    def iterate(self, args: Args) -> Returned:
        self._rows.append(self._to_arguments(args))
        return [self._value()] if self._window else []

    def expire(self, args: Args) -> Returned:  # noqa: ARG002
        """Remove the oldest stored row, because rows expire in arrival order."""
        self._rows.pop(0)
        return []

    def terminate(self) -> Returned:
        return [self._value()]

    def state(self) -> object:
        return self._rows

    def restore(self, state: Any) -> None:
        self._rows = state

    def _value(self) -> object:
        names = self._model.parameters
        rows = [dict(zip(names, row, strict=False)) for row in self._rows]
        stamps = None
        if self._model.uses_age:
            stamps = [Fraction(int(str(row[-1])), MICROSECONDS) for row in self._rows]
        value = self._model.value(rows, stamps)
        if value is None or self._model.is_condition:
            return value
        try:
            return float(value)
        except OverflowError:
            return None

"""Calls of models: their arguments, and state shared between models."""

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
    """Model and its arguments.

    A model that uses age has the time as last argument.
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
        """Return the model over columns of a joint call, which include its own arguments.

        Columns are matched by the text of the expression, not by position. So the form of the model's cores,
        and every bit of its result, is independent of other models.
        """
        own = dict(zip(self.model.parameters, map(argument_name, self.arguments), strict=False))
        return with_columns(self.model, own, [argument_name(argument) for argument in arguments])


def model_call_of(call: WindowCall | AggregateCall, catalog: Catalog) -> ModelCall | None:
    """Return the model that a call evaluates, or None for other aggregates."""
    found = joint_call_of(call, catalog)
    return found if isinstance(found, ModelCall) else None


def joint_call(definition: AggregateDefinition, arguments: tuple[Expr, ...]) -> ModelCall:
    return ModelCall(models_of(definition)[0], arguments)


def argument_name(argument: Expr) -> str:
    """Return the name of an argument in the cores of a model.

    >>> from slicemill.types import DOUBLE
    >>> argument_name(ColumnRef("price", DOUBLE))
    'price'
    """
    text = render(argument)
    return text if isinstance(argument, ColumnRef) else f"({text})"


def joint_state(asked: Sequence[ModelCall]) -> JointModels:
    """Return the joint state of models over one window.

    All arguments must be finite numbers.
    """
    return joint([each.over(each.arguments) for each in asked], finite=True)


def can_share_window(others: Sequence[ModelCall], asked: ModelCall) -> bool:
    """Return True if a model can share a window with others.

    Models that use age must use the same time.
    """
    times = {each.at for each in (*others, asked)}
    return len(times - {None}) <= 1


# Row-by-row evaluation of models, which reads the whole window at each tuple.


MICROSECONDS = 1_000_000  # age is in seconds


class ModelAccumulator:
    """Adapter of a model to the base and window accumulator protocols.

    Its state is the list of tuples.
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
        """Remove the oldest tuple. Tuples expire in arrival order."""
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

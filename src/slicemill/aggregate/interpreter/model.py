"""Row-by-row evaluation of models, which reads the whole window at each tuple."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from slicemill.aggregate.definition import Returned
from slicemill.aggregate.interpreter.statements import row_converter
from slicemill.aggregate.inwindow import Args
from slicemill.esl.types.aggregate import AggregateDefinition
from slicemill.model.model import Model

MICROSECONDS = 1_000_000  # age is in seconds


class ModelAccumulator:
    """Adapter of a model to the base and window accumulator protocols.

    Its state is the list of tuples.
    """

    __slots__ = ("_model", "_rows", "_to_arguments", "_window")

    def __init__(self, definition: AggregateDefinition) -> None:
        assert definition.model is not None, "the caller has looked"
        self._model: Model = definition.model
        self._window = definition.window
        self._to_arguments = row_converter(definition.arguments)
        self._rows: list[Args] = []

    def initialize(self, args: Args) -> Returned:
        return self.iterate(args)

    def iterate(self, args: Args) -> Returned:
        self._rows.append(self._to_arguments(args))
        return [self._value()] if self._window else []

    def expire(self, args: Args) -> Returned:  # noqa: ARG002
        """Remove the oldest tuple; tuples expire in arrival order."""
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

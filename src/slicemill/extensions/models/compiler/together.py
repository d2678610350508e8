"""Compiled evaluation of several models over one window, which share state.

A model is a formula over a window. A core statistic is a sum, count or extreme over the window from which the
model's result is computed. Equal core statistics of the models are stored once.

    calls = ModelCalls([ModelCall(mean, (price,)), ModelCall(slope, (price, size))], frame)
    state = calls.uda.start()
    answers = calls.uda.run(state, Tuples(columns_of(calls.arguments), seller, ts))

The result has one column per model. Each value is bitwise equal to the result of the model alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache

from slicemill.aggregates import definition as aggregate
from slicemill.aggregates.calls import ExecutionForm
from slicemill.aggregates.definition import strategy_of
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.compiler.compiled import CompiledCall
from slicemill.aggregates.udf.compiler.layout import MACHINE
from slicemill.aggregates.udf.compiler.module import generate
from slicemill.aggregates.udf.compiler.state import CompiledState
from slicemill.catalog.aggregates import AggregateDefinition
from slicemill.catalog.expressions import Expr
from slicemill.errors import SlicemillError
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.cores import CoreMethod
from slicemill.extensions.models.cost import CoreCosts
from slicemill.extensions.models.model import Model
from slicemill.types import BOOLEAN, DOUBLE, TIMESTAMP, Column, Schema

_MANY = 256


class ModelCalls:
    """Several calls of models over one window, compiled into one aggregate.

    `arguments` may include more expressions than the models need, because the layout of a state depends on
    them. All models that use `age` must use the same time. NoCompiledForm is raised if a model cannot be
    compiled.
    """

    def __init__(
        self,
        asked: Sequence[ModelCall],
        frame: WindowFrame | None,
        arguments: Sequence[Expr] | None = None,
        form: str = MACHINE,
        costs: CoreCosts | None = None,
    ) -> None:
        self.asked = tuple(asked)
        self._frame, self._form, self._costs = frame, form, costs
        self.arguments = _all_arguments(asked) if arguments is None else tuple(arguments)
        types = tuple(argument.type for argument in self.arguments)
        base, window = (self._definition(windowed) for windowed in (False, True))
        strategy = None if frame is None else strategy_of(aggregate.RowAggregate(base.name, None), frame)
        literals: dict[str, int] = {}
        plain, nullable = (
            generate((base, window), frame, strategy, types, form, maybe, literals, lambda _: frozenset())
            for maybe in (False, True)
        )
        returns = tuple(column.type for column in base.returns)
        how = ExecutionForm(form, "", nullable.source)
        self.uda = CompiledCall((plain, nullable), returns, types, frame, literals, how, _not_a_number_error)

    def only(self, wanted: Collection[ModelCall], state: CompiledState) -> ModelCalls:
        """Return the evaluation of only these models. The state of all other models is dropped."""
        numbers = [number for number, each in enumerate(self.asked) if each in wanted]
        remaining = ModelCalls(
            [self.asked[n] for n in numbers], self._frame, self.arguments, self._form, self._costs
        )
        remaining.uda.take_over(state, self.uda, numbers)
        return remaining

    def _definition(self, windowed: bool) -> AggregateDefinition:
        at = next((each.at for each in self.asked if each.at is not None), None)
        columns = [
            Column("at", TIMESTAMP) if argument == at else Column(f"given{index}", DOUBLE)
            for index, argument in enumerate(self.arguments)
        ]
        models = tuple(each.over(self.arguments) for each in self.asked)
        returns = tuple(
            Column(f"answer{number}", BOOLEAN if model.is_condition else DOUBLE)
            for number, model in enumerate(models)
        )
        return AggregateDefinition(
            "models",
            Schema(tuple(columns)),
            Schema(returns),
            windowed,
            algebraic=False,
            formulas=models,
            options=self._recomputed_cores(models) if windowed else frozenset(),
        )

    def _recomputed_cores(self, models: Sequence[Model]) -> frozenset[str]:
        """Return the core statistics, as text, that are cheaper to recompute than to update at each slide.

        The choice for a core statistic is independent of the other models.
        """
        sizes = None if self._frame is None or self._costs is None else slide_of(self._frame)
        if sizes is None or self._costs is None:
            return frozenset()
        classes = {
            core: class_ for model in models for core, class_ in zip(model.cores, model.classes, strict=True)
        }
        return frozenset(
            str(core)
            for core, class_ in classes.items()
            if self._costs.cheapest_method(core, class_, *sizes) is CoreMethod.RECOMPUTE
        )


# Assumed number of elements in a RANGE window. The choice of a method depends little on it.
_ASSUMED_SIZE = 1000


def slide_of(frame: WindowFrame) -> tuple[int, int] | None:
    """Return the number of elements in a window, and in each slide of the window.

    Return None if both numbers depend on the data.
    """
    if frame.length is None:
        return None
    if frame.unit == "ROWS":
        return frame.length, min(frame.slide or 1, frame.length)
    if frame.slide is None:
        return None
    slide = round(_ASSUMED_SIZE * frame.slide / frame.length)
    return _ASSUMED_SIZE, max(1, min(slide, _ASSUMED_SIZE))


@lru_cache(_MANY)
def model_calls(
    asked: tuple[ModelCall, ...],
    frame: WindowFrame | None,
    arguments: tuple[Expr, ...] | None = None,
    costs: CoreCosts | None = None,
) -> ModelCalls:
    """Return the compiled evaluation of several models over one window, cached per process."""
    return ModelCalls(asked, frame, arguments, costs=costs)


def _all_arguments(asked: Sequence[ModelCall]) -> tuple[Expr, ...]:
    """Return the distinct arguments of all calls. Timestamps for `age` come last."""
    times = {each.at for each in asked if each.at is not None}
    numbers = dict.fromkeys(argument for each in asked for argument in each.arguments)
    return (*(argument for argument in numbers if argument not in times), *times)


def _not_a_number_error(*_: object) -> SlicemillError:
    return SlicemillError("an argument of a model is not a number")

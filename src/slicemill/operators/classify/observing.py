"""Observation functions: compute feature values from payloads only when needed.

    observe(feature, keys, payloads)        # a name, and Arrow arrays of task keys and input values

The function is called once per feature and time unit, with the tasks for which the feature is observed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from slicemill.errors import SlicemillError
from slicemill.esl.types.classifier import Classifier as Definition
from slicemill.esl.types.schema import Schema, Type
from slicemill.operators.classify.training import Trained, place_of, placed
from slicemill.scalar.vectors import from_values, to_arrow
from slicemill.shedding.classify.arrays import Bools, Floats
from slicemill.shedding.classify.classifier import Observe


class Observer:
    """Evaluation of a user's observation function on payloads."""

    def __init__(self, definition: Definition, schemas: Sequence[Schema], trained: Trained) -> None:
        assert definition.options.observe is not None, "the caller has looked"
        self._name = definition.options.observe
        self._features = definition.features
        self._keys = list(trained.tasks)
        self._types: dict[int, Type] = {}
        for places, schema in zip(placed(definition, schemas), schemas, strict=True):
            self._types |= {feature: schema.columns[column].type for column, feature in places}
        key = None if definition.key is None else place_of(schemas[0], definition.key)
        self._key_type = None if key is None else schemas[0].columns[key].type

    def of(self, payloads: Sequence[object], places: Floats) -> Observe:
        """Return the observation function of a time unit.

        `places` (n, k) are positions in `payloads`, NaN for missing values.
        """

        def observe(chosen: Bools) -> Floats:
            seen = np.full(places.shape, np.nan)
            for feature in range(places.shape[1]):
                tasks = np.flatnonzero(chosen[:, feature])
                if len(tasks):
                    given = [payloads[int(place)] for place in places[tasks, feature]]
                    seen[tasks, feature] = self._called(feature, tasks.tolist(), given)
            return seen

        return observe

    def _called(self, feature: int, tasks: Sequence[int], payloads: Sequence[object]) -> Floats:
        name = self._features[feature]
        keys = pa.nulls(len(tasks))
        if self._key_type is not None:
            keys = _array([self._keys[task] for task in tasks], self._key_type)
        try:
            given = _imported(self._name)(name, keys, _array(payloads, self._types[feature]))
            array = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
            values = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        except Exception as problem:  # a user's function may fail in any way
            said = str(problem).partition("\n")[0]
            raise SlicemillError(
                f"{self._name} failed to observe {name}: {type(problem).__name__}: {said}"
            ) from None
        if len(values) != len(tasks):
            raise SlicemillError(
                f"{self._name} was given {len(tasks)} values of {name} and returned {len(values)}"
            )
        return np.where(np.isfinite(values), values, np.nan)


def _array(values: Sequence[object], type_: Type) -> pa.Array:
    return to_arrow(from_values(values, type_), len(values))


@cache
def _imported(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found

"""Classifier operator: decides at the end of each time unit (M49, M53).

Time units are aligned to multiples of their length. A unit uses the last value of each feature. From the
unit of the first tuple on, each unit emits a row per task, even if no tuple arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from slicemill.extensions.classify.definition import Classifier as Definition
from slicemill.extensions.classify.step import (
    Observer,
    TrainedClassifier,
    as_number,
    column_index,
    column_indexes,
)
from slicemill.types import Schema, Timed


class ClassifyOperator:
    """Classifies the tuples of each time unit."""

    waits_for_time = True

    def __init__(self, definition: Definition, schemas: Sequence[Schema], trained: TrainedClassifier) -> None:
        self.inputs = len(schemas)
        self._keyed = definition.key is not None
        self._every = definition.every_us
        self._trained = trained
        self._features = len(definition.features)
        # by input: the key's index, and the number of each column's feature
        self._keys = [None if definition.key is None else column_index(s, definition.key) for s in schemas]
        self._indices = column_indexes(definition, schemas)
        self._values = trained.nothing(self._features)
        observes = definition.options.observe is not None
        self._observer = Observer(definition, schemas, trained) if observes else None
        self._payloads: list[object] = []
        self._end: int | None = None
        self._used = False  # True if a tuple has arrived in this unit

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        if self._end is None:
            self._end = (tuple_.ts // self._every + 1) * self._every
        rows = self._close(tuple_.ts)
        index = self._keys[port]
        task = self._trained.tasks.get(() if index is None else tuple_.row[index])
        self._used = True
        if task is not None:
            for column, feature in self._indices[port]:
                value = self._value(tuple_.row[column])
                if not math.isnan(value):
                    self._values[task, feature] = value
        return rows

    def _value(self, given: object) -> float:
        """Return a value as a number.

        With an observation function, the number is the index of the stored value.
        """
        if self._observer is None:
            return as_number(given)
        if given is None:
            return math.nan
        self._payloads.append(given)
        return float(len(self._payloads) - 1)

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._close(ts)

    def finish(self) -> Sequence[Timed]:
        rows = self._decide() if self._used else []
        self._end = None
        return rows

    def held_from(self) -> int | None:
        return self._end

    def due(self) -> int | None:
        return self._end

    def state(self) -> Any:
        return {
            "trained": self._trained,
            "values": self._values,
            "payloads": self._payloads,
            "end": self._end,
            "used": self._used,
        }

    def restore(self, state: Any) -> None:
        self._trained, self._values = state["trained"], state["values"]
        self._payloads = state["payloads"]
        self._end, self._used = state["end"], state["used"]

    def _close(self, ts: int) -> list[Timed]:
        rows: list[Timed] = []
        while self._end is not None and self._end <= ts:
            rows += self._decide()
        return rows

    def _decide(self) -> list[Timed]:
        assert self._end is not None
        observe = None if self._observer is None else self._observer.of(self._payloads, self._values)
        rows = self._trained.decide(self._end, self._values, self._keyed, observe)
        self._payloads = []
        self._values = self._trained.nothing(self._features)
        self._end += self._every
        self._used = False
        return rows

"""A classifier as an operator: what arrives in a time unit is decided on when the unit is over (M49, M53).

Time units are cut at multiples of their length. The last value of each feature in a unit is the one that can
be looked at. The first unit is that of the first tuple; from then on each unit gives a row per task, also one
in which nothing arrived.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.esl.types.classifier import Classifier as Definition
from slicemill.esl.types.schema import Schema
from slicemill.rows import Row, Timed
from slicemill.shedding.classify import TaskClassifier
from slicemill.shedding.classify.arrays import Floats
from slicemill.shedding.classify.training import Examples, train
from slicemill.storage.codec import stored_as


@stored_as("classify.trained", version=1)
@dataclass(slots=True)
class Trained:
    """The tasks' keys, the names of the classes, and what decides; without a key there is one task, ()."""

    tasks: dict[object, int]
    classes: list[object]
    classifier: TaskClassifier

    def nothing(self, features: int) -> Floats:
        """The values of a time unit in which nothing has arrived."""
        return np.full((len(self.tasks), features), np.nan)

    def decide(self, end: int, values: Floats, keyed: bool) -> list[Timed]:
        """The rows of a time unit that ends at `end`."""
        found = self.classifier.step(values)
        rows: list[Timed] = []
        for key, task in self.tasks.items():
            decision = (end, self.classes[found.classes[task]], float(found.risks[task]))
            looked = int(np.count_nonzero(found.observed[task]))
            rows.append(Timed(end, (*((key,) if keyed else ()), *decision, looked)))
        return rows


def trained(definition: Definition, rows: Sequence[Row], schema: Schema) -> Trained:
    """What is learnt from the rows of the table of examples; they are taken to be in order of time."""
    key = None if definition.key is None else _place(schema, definition.key)
    label, places = _place(schema, definition.label), [_place(schema, name) for name in definition.features]
    told = [row for row in rows if row[label] is not None and (key is None or row[key] is not None)]
    if not told:
        raise SlicemillError(f"{definition.training} has no row that {definition.name} could learn from")
    classes = sorted({row[label] for row in told}, key=_order)
    keys = sorted({() if key is None else row[key] for row in told}, key=_order)
    tasks = {value: number for number, value in enumerate(keys)}
    numbers = {value: number for number, value in enumerate(classes)}
    examples = [Examples([], []) for _ in tasks]
    for row in told:
        mine = examples[tasks[() if key is None else row[key]]]
        mine.values.append([as_number(row[place]) for place in places])
        mine.labels.append(numbers[row[label]])
    return Trained(tasks, classes, train(examples, len(classes), definition.options))


class Classify:
    """The operator of the reference engine."""

    waits_for_time = True

    def __init__(self, definition: Definition, schemas: Sequence[Schema], trained: Trained) -> None:
        self.inputs = len(schemas)
        self._keyed = definition.key is not None
        self._every = definition.every_us
        self._trained = trained
        self._features = len(definition.features)
        # Per input: where the key is, and for each column the number of its feature.
        self._keys = [None if definition.key is None else _place(s, definition.key) for s in schemas]
        self._places = placed(definition, schemas)
        self._values = trained.nothing(self._features)
        self._end: int | None = None
        self._used = False  # has anything arrived in this unit?

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        if self._end is None:
            self._end = (tuple_.ts // self._every + 1) * self._every
        rows = self._close(tuple_.ts)
        place = self._keys[port]
        task = self._trained.tasks.get(() if place is None else tuple_.row[place])
        self._used = True
        if task is not None:
            for column, feature in self._places[port]:
                value = as_number(tuple_.row[column])
                if not math.isnan(value):
                    self._values[task, feature] = value
        return rows

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
        return {"trained": self._trained, "values": self._values, "end": self._end, "used": self._used}

    def restore(self, state: Any) -> None:
        self._trained, self._values = state["trained"], state["values"]
        self._end, self._used = state["end"], state["used"]

    def _close(self, ts: int) -> list[Timed]:
        rows: list[Timed] = []
        while self._end is not None and self._end <= ts:
            rows += self._decide()
        return rows

    def _decide(self) -> list[Timed]:
        assert self._end is not None
        rows = self._trained.decide(self._end, self._values, self._keyed)
        self._values = self._trained.nothing(self._features)
        self._end += self._every
        self._used = False
        return rows


def placed(definition: Definition, schemas: Sequence[Schema]) -> list[list[tuple[int, int]]]:
    """Per input, its columns and the numbers of the features that they are."""
    found: list[list[tuple[int, int]]] = []
    number = 0
    for entry, schema in zip(definition.inputs, schemas, strict=True):
        found.append([(_place(schema, name), number + i) for i, name in enumerate(entry.columns)])
        number += len(entry.columns)
    return found


def as_number(value: object) -> float:
    """A feature's value; what is no number, or has no end, is as if it had not come."""
    number = math.nan if value is None else float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else math.nan


def _place(schema: Schema, name: str) -> int:
    lowered = name.lower()
    return next(i for i, column in enumerate(schema) if column.name.lower() == lowered)


def _order(value: object) -> tuple[str, object]:
    """Values of one type, in their own order."""
    return type(value).__name__, value

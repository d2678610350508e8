"""Training of classifiers, and decisions per time unit (M49, M53)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slicemill.errors import SlicemillError
from slicemill.esl.types.classifier import Classifier as Definition
from slicemill.esl.types.schema import Schema
from slicemill.rows import Row, Timed
from slicemill.shedding.classify import TaskClassifier
from slicemill.shedding.classify.arrays import Floats
from slicemill.shedding.classify.classifier import Observe
from slicemill.shedding.classify.training import Examples, train
from slicemill.storage.codec import stored_as


@stored_as("classify.trained", version=1)
@dataclass(slots=True)
class Trained:
    """Trained classifier, with task numbers by key and class names.

    Without a key there is one task, ().
    """

    tasks: dict[object, int]
    classes: list[object]
    classifier: TaskClassifier

    def nothing(self, features: int) -> Floats:
        """Return the values of a time unit without tuples."""
        return np.full((len(self.tasks), features), np.nan)

    def decide(
        self, end: int, values: Floats, keyed: bool, observe: Observe | None = None, share: float = 1.0
    ) -> list[Timed]:
        """Return the rows of the time unit that ends at `end`.

        `observe` returns observed values. `share` is the available share of the capacity.
        """
        found = self.classifier.step(values, observe, share)
        rows: list[Timed] = []
        for key, task in self.tasks.items():
            decision = (end, self.classes[found.classes[task]], float(found.risks[task]))
            looked = int(np.count_nonzero(found.observed[task]))
            rows.append(Timed(end, (*((key,) if keyed else ()), *decision, looked)))
        return rows


def trained(definition: Definition, rows: Sequence[Row], schema: Schema) -> Trained:
    """Train a classifier on rows in order of time."""
    key = None if definition.key is None else place_of(schema, definition.key)
    label, places = (
        place_of(schema, definition.label),
        [place_of(schema, name) for name in definition.features],
    )
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


def placed(definition: Definition, schemas: Sequence[Schema]) -> list[list[tuple[int, int]]]:
    """Return for each input the column indexes and feature numbers."""
    found: list[list[tuple[int, int]]] = []
    number = 0
    for entry, schema in zip(definition.inputs, schemas, strict=True):
        found.append([(place_of(schema, name), number + i) for i, name in enumerate(entry.columns)])
        number += len(entry.columns)
    return found


def as_number(value: object) -> float:
    """Return a feature's value as a number, NaN if it is not finite."""
    number = math.nan if value is None else float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else math.nan


def place_of(schema: Schema, name: str) -> int:
    lowered = name.lower()
    return next(i for i, column in enumerate(schema) if column.name.lower() == lowered)


def _order(value: object) -> tuple[str, object]:
    """Return a sort key for values of one type."""
    return type(value).__name__, value
